#!lua flags=allow-oom
-- cancel: a recurrence ends; occurrences that were admitted stay (protocol §9).
-- KEYS[1] -> repeat   KEYS[2] -> record
-- ARGV[1] -> name
-- returns 1; 0 when there was none
-- @include base
redis.call('ZCARD', KEYS[1])
local record = redis.call('DEL', KEYS[1] .. ':' .. ARGV[1])
local member = redis.call('ZREM', KEYS[1], ARGV[1])
return math.max(record, member)
