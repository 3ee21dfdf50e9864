#!lua flags=no-writes
-- gate: whether a claim would pass the concurrency ceiling (protocol §7).
-- KEYS[1] -> meta   KEYS[2] -> active
-- returns 0; EMQRATE at concurrency ceiling
local ceiling = tonumber(redis.call('HGET', KEYS[1], 'concurrency') or nil)
if ceiling and ceiling > 0 and redis.call('ZCARD', KEYS[2]) >= ceiling then
  return redis.error_reply('EMQRATE at concurrency ceiling')
end
return 0
