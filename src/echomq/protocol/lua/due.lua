#!lua flags=allow-oom
-- due: the recurrences whose next run has come, oldest first, with their records (protocol §9). A name without a
-- record is swept.
-- KEYS[1] -> repeat
-- ARGV[1] -> now ms, the host's   ARGV[2] -> limit
-- returns name, score, every ms, template of each
local out = {}
local members = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for i = 1, #members, 2 do
  local record = redis.call('HMGET', KEYS[1] .. ':' .. members[i], 'every_ms', 'template')
  if record[1] or record[2] then
    local n = #out
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = members[i], members[i + 1], record[1] or '0', record[2] or ''
  else
    redis.call('ZREM', KEYS[1], members[i])
  end
end
return out
