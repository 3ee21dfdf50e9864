#!lua flags=no-writes
-- workers: who lives (protocol §2).
-- KEYS[1] -> workers   KEYS[2] -> workers:info
-- returns now ms, then name, last seen ms, JSON of each, the latest first
-- @include base
-- @include now
local out = { now }
local members = redis.call('ZRANGE', KEYS[1], 0, -1, 'REV', 'WITHSCORES')
for i = 1, #members, 2 do
  local n = #out
  out[n + 1], out[n + 2] = members[i], members[i + 1]
  out[n + 3] = redis.call('HGET', base .. 'workers:info', members[i]) or '{}'
end
return out
