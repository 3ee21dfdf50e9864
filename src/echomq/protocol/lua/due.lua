#!lua flags=allow-oom
-- due: the recurrences whose next run has come, oldest first, with their records (protocol §9). A name without a
-- record is swept.
-- KEYS[1] -> repeat
-- ARGV[1] -> now ms, the host's   ARGV[2] -> limit
-- returns name, score, every ms, template of each; every ms is 0 for a record that cannot be read: fire drops it
-- @include recurrence
local out = {}
local members = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for i = 1, #members, 2 do
  local record = KEYS[1] .. ':' .. members[i]
  if redis.call('EXISTS', record) == 1 then
    local n, period, template = #out, readable(record)
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = members[i], members[i + 1], period or 0, template or ''
  else
    redis.call('ZREM', KEYS[1], members[i])
  end
end
return out
