#!lua
-- register: a recurrence under a new name (protocol §9).
-- KEYS[1] -> repeat   KEYS[2] -> record
-- ARGV[1] -> name     ARGV[2] -> every ms   ARGV[3] -> template   ARGV[4] -> first run ms
-- returns 1; 0 when the name lives; ERR every, ERR first run
-- @include recurrence
-- @include wake
local refused = unregistrable('register', ARGV[2], ARGV[4])
if refused then return refused end
local record = KEYS[1] .. ':' .. ARGV[1]
redis.call('ZCARD', KEYS[1])
if redis.call('EXISTS', record) == 1 then return 0 end
redis.call('HSET', record, 'every_ms', ARGV[2], 'template', ARGV[3])
redis.call('ZADD', KEYS[1], ARGV[4], ARGV[1])
wake_if_first(KEYS[1], ARGV[1])
return 1
