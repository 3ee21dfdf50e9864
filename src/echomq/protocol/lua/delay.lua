#!lua flags=allow-oom
-- delay: a job in hand goes back to the schedule; no attempt, failure or lapse is spent (protocol §5). One that has been
-- cancelled meanwhile is buried as cancelled.
-- Twin: EMQ.DELAY, which leaves a grouped row and a cancelled one to this script.
-- KEYS[1] -> row   KEYS[2] -> active   KEYS[3] -> schedule
-- ARGV[1] -> id    ARGV[2] -> token    ARGV[3] -> in | at   ARGV[4] -> ms
-- returns 1; dead: it was cancelled; EMQSTALE job gone; EMQSTALE delay token mismatch; EMQSTATE delay not active; ERR arity, ERR mode, ERR due, EMQKIND
-- @include shape
local wrong = misshapen('EMQ.DELAY', 3, 4)
if wrong then return wrong end
-- @include due
-- @include kind
-- @include fenced
-- @include place
-- @include sound
-- @include bury
-- @include ceiling
local due, refused = due_at('EMQ.DELAY', ARGV[3], ARGV[4])
if not due then return refused end
local id = ARGV[1]
refused = not_a_job(id)
if refused then return refused end
local row, stale = fenced('delay', id, ARGV[2], 'group', 'cancel')
if not row then return stale end
if not redis.call('ZSCORE', base .. 'active', id) then return redis.error_reply('EMQSTATE delay not active') end
sound('schedule')
sound_lane(row[2])
local wish = row[3]
if wish then sound('dead') end
local told = wish and sound_death(id)
local opened = leave(id, row[2], 'active')
if wish then
  bury(id, wish, told)
  wake_freed(1, opened)
  return 'dead'
end
redis.call('HSET', row_of(id), 'state', 'scheduled')
redis.call('ZADD', base .. 'schedule', due, id)
wake_freed(1, opened)
wake_if_first(base .. 'schedule', id)
return 1
