#!lua
-- add log: one line, the newest `keep` kept (protocol §7).
-- KEYS[1] -> row     KEYS[2] -> row:logs
-- ARGV[1] -> line    ARGV[2] -> keep, or ''
-- returns lines kept; -1 gone
if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
local kept = redis.call('RPUSH', KEYS[2], ARGV[1])
if ARGV[2] ~= '' and kept > tonumber(ARGV[2]) then
  kept = tonumber(ARGV[2])
  redis.call('LTRIM', KEYS[2], -kept, -1)
end
return kept
