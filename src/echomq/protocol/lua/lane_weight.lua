#!lua flags=allow-oom
-- weight lane: its share of a weighted turn (protocol §6).
-- KEYS[1] -> gweight
-- ARGV[1] -> group   ARGV[2] -> w >= 1
-- returns 1; ERR for a w that is no positive integer
-- @include natural
local weight = natural(ARGV[2])
if not weight or weight < 1 then return redis.error_reply('ERR weight must be a positive integer') end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
