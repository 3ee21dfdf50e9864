#!lua
-- update payload: another payload for a job that has a row (protocol §7).
-- KEYS[1] -> row
-- ARGV[1] -> payload
-- returns 1; -1 gone
if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
redis.call('HSET', KEYS[1], 'payload', ARGV[1])
return 1
