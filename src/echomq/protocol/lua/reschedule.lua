#!lua flags=allow-oom
-- reschedule: moves a scheduled job in time (protocol §5). Twin: EMQ.RESCHEDULE.
-- KEYS[1] -> row   KEYS[2] -> schedule
-- ARGV[1] -> id    ARGV[2] -> in | at   ARGV[3] -> ms
-- returns 1; -1 no row; EMQSTATE reschedule not scheduled; ERR arity, ERR mode, ERR due, EMQKIND
-- @include shape
local wrong = misshapen('EMQ.RESCHEDULE', 2, 3)
if wrong then return wrong end
-- @include due
-- @include kind
-- @include rows
-- @include wake
local due, refused = due_at('EMQ.RESCHEDULE', ARGV[2], ARGV[3])
if not due then return refused end
refused = not_a_job(ARGV[1])
if refused then return refused end
local schedule = base .. 'schedule'
if redis.call('EXISTS', row_of(ARGV[1])) == 0 then
  redis.call('ZREM', schedule, ARGV[1])
  return -1
end
if not redis.call('ZSCORE', schedule, ARGV[1]) then
  return redis.error_reply('EMQSTATE reschedule not scheduled')
end
redis.call('ZADD', schedule, 'XX', due, ARGV[1])
wake_if_first(base .. 'schedule', ARGV[1])
return 1
