#!lua
-- schedule: admits one job to run later, fenced by its id (protocol §5). Twin: EMQ.SCHEDULE.
-- KEYS[1] -> row   KEYS[2] -> schedule
-- ARGV[1] -> id    ARGV[2] -> payload   ARGV[3] -> in | at   ARGV[4] -> ms
-- returns 1; 0 when the id has a row or a kept result; ERR arity, ERR mode, ERR due, EMQKIND
-- @include shape
local wrong = misshapen('EMQ.SCHEDULE', 2, 4)
if wrong then return wrong end
-- @include due
-- @include kind
-- @include admit
-- @include wake
local due, refused = due_at('EMQ.SCHEDULE', ARGV[3], ARGV[4])
if not due then return refused end
refused = not_a_job(ARGV[1])
if refused then return refused end
if known(ARGV[1]) then return 0 end
redis.call('ZADD', base .. 'schedule', due, ARGV[1])
redis.call('HSET', row_of(ARGV[1]), 'state', 'scheduled', 'attempts', '0', 'payload', ARGV[2])
wake_if_first(base .. 'schedule', ARGV[1])
return 1
