#!lua flags=allow-oom
-- audit books: gactive against the rows in hand, the ring against the lanes that can be served, the wake list; mends
-- the first two when asked (protocol §12.1).
-- KEYS[1] -> any key of the queue
-- ARGV[1] -> mend or ''
-- returns breaches
-- @include lane
-- @include rows
local out, held, groups, seen = {}, {}, {}, {}
local function note(group)
  if not seen[group] then
    seen[group] = true
    groups[#groups + 1] = group
  end
end
for _, id in ipairs(redis.call('ZRANGE', base .. 'active', 0, -1)) do
  local row = fields(id, 'group')
  if row and row[1] then
    held[row[1]] = (held[row[1]] or 0) + 1
    note(row[1])
  end
end
for _, name in ipairs({ 'gactive', 'glimit', 'lanes' }) do
  for _, group in ipairs(redis.call('HKEYS', base .. name)) do note(group) end
end
local on = {}
for _, group in ipairs(redis.call('LRANGE', base .. 'ring', 0, -1)) do
  on[group] = (on[group] or 0) + 1
  note(group)
end
for _, group in ipairs(redis.call('SMEMBERS', base .. 'paused')) do note(group) end
for _, group in ipairs(groups) do
  local counted = tonumber(redis.call('HGET', base .. 'gactive', group) or nil) or 0
  if counted ~= (held[group] or 0) then
    out[#out + 1] = 'gactive of ' .. group .. ' is ' .. counted .. ', in hand are ' .. (held[group] or 0)
    if ARGV[1] == 'mend' then
      if held[group] then
        redis.call('HSET', base .. 'gactive', group, held[group])
      else
        redis.call('HDEL', base .. 'gactive', group)
      end
    end
  end
  local open, times = lane_open(group), on[group] or 0
  if times ~= (open and 1 or 0) then
    out[#out + 1] = 'lane ' .. group .. ' is ' .. (open and '' or 'not ') .. 'serviceable, on the ring ' .. times .. ' times'
  end
  if ARGV[1] == 'mend' then
    redis.call('LREM', base .. 'ring', 0, group)
    if lane_open(group) then redis.call('RPUSH', base .. 'ring', group) end
  end
end
local tokens = redis.call('LLEN', base .. 'wake')
if tokens > 64 then out[#out + 1] = 'wake holds ' .. tokens .. ' tokens' end
return out
