#!lua flags=no-writes
-- gate: whether a claim would pass the concurrency ceiling (protocol §7).
-- KEYS[1] -> meta   KEYS[2] -> active
-- returns 0; EMQRATE at concurrency ceiling
-- @include base
local ceiling = tonumber(redis.call('HGET', base .. 'meta', 'concurrency') or nil)
if ceiling and ceiling > 0 and redis.call('ZCARD', base .. 'active') >= ceiling then
  return redis.error_reply('EMQRATE at concurrency ceiling')
end
return 0
