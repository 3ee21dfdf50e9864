#!lua flags=allow-oom
-- flow reject: a malformed entry leaves the outbox and is set aside, the newest 1,000 kept (protocol §8).
-- KEYS[1] -> flow:outbox   KEYS[2] -> flow:rejected
-- ARGV[1] -> the entry
-- returns 1; 0 when another pump was first
-- @include base
local rejected = base .. 'flow:rejected'
redis.call('LLEN', rejected)
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then return 0 end
redis.call('LPUSH', rejected, ARGV[1])
redis.call('LTRIM', rejected, 0, 999)
return 1
