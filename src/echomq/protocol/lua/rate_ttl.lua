#!lua flags=no-writes
-- rate TTL: how long the rate budget stays spent (protocol §7).
-- KEYS[1] -> limiter   KEYS[2] -> meta
-- ARGV[1] -> max, 0 for meta's
-- returns PTTL of the limiter when it is at max or above, else 0
-- @include base
local max = tonumber(ARGV[1])
if max == 0 then max = tonumber(redis.call('HGET', base .. 'meta', 'max') or nil) or 0 end
local spent = tonumber(redis.call('GET', KEYS[1]) or nil) or 0
if max > 0 and spent >= max then return math.max(redis.call('PTTL', KEYS[1]), 0) end
return 0
