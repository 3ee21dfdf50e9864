#!lua flags=allow-oom
-- audit books: gactive against the rows in hand, the ring against the lanes that can be served, the wake list; mends
-- the first two when asked, and wakes for what that makes claimable (protocol §12.1, §12.2).
-- KEYS[1] -> any key of the queue
-- ARGV[1] -> mend or ''   then groups whose lanes were seen: a lane that has fallen off the ring is named nowhere else
-- returns breaches
-- A key that holds another type is left out, with whatever cannot be said without it: audit_types names it.
-- @include lane
-- @include rows
-- @include wake
local out, held, groups, seen, on = {}, {}, {}, {}, {}
local TYPES = {
  active = 'zset', ring = 'list', paused = 'set', glimit = 'hash', gactive = 'hash', lanes = 'hash', wake = 'list',
}
-- holds(key, kind): whether it can be read as what it is to be; fits: that, of the queue's keys by name.
local function holds(key, kind)
  local is = redis.call('TYPE', key).ok
  return is == 'none' or is == kind
end
local fits = {}
for name, kind in pairs(TYPES) do fits[name] = holds(base .. name, kind) end
local function note(group)
  if not seen[group] then groups[#groups + 1] = group end
  seen[group] = true
end
for i = 2, #ARGV do note(ARGV[i]) end
for _, id in ipairs(fits.active and redis.call('ZRANGE', base .. 'active', 0, -1) or {}) do
  local row = fields(id, 'group')
  if row and row[1] then
    held[row[1]] = (held[row[1]] or 0) + 1
    note(row[1])
  end
end
for _, name in ipairs({ 'gactive', 'glimit', 'lanes' }) do
  for _, group in ipairs(fits[name] and redis.call('HKEYS', base .. name) or {}) do note(group) end
end
for _, group in ipairs(fits.ring and redis.call('LRANGE', base .. 'ring', 0, -1) or {}) do
  on[group] = (on[group] or 0) + 1
  note(group)
end
for _, group in ipairs(fits.paused and redis.call('SMEMBERS', base .. 'paused') or {}) do note(group) end
local counts = fits.active and fits.gactive
local turns = fits.ring and fits.paused and fits.glimit and fits.gactive
local function check_hands(group)
  local said, right = redis.call('HGET', base .. 'gactive', group), held[group] or 0
  if (said or '0') == tostring(right) then return end
  out[#out + 1] = 'gactive of ' .. group .. ' is ' .. (said or 'missing') .. ', in hand are ' .. right
  if ARGV[1] ~= 'mend' then return end
  redis.call('HDEL', base .. 'gactive', group)
  if right > 0 then redis.call('HSET', base .. 'gactive', group, right) end
end
local function check_ring(group)
  local times, open = on[group] or 0, lane_open(group)
  if times ~= (open and 1 or 0) then
    out[#out + 1] = 'lane ' .. group .. ' is ' .. (open and '' or 'not ') .. 'serviceable, on the ring ' .. times .. ' times'
  end
  return times
end
local function mend_ring(group, times)
  local open = lane_open(group)
  if times == (open and 1 or 0) then return end
  redis.call('LREM', base .. 'ring', 0, group)
  if open then redis.call('RPUSH', base .. 'ring', group) end
  if open and times == 0 then wake(lane_served(group)) end
end
for _, group in ipairs(groups) do
  local turning = turns and holds(lane_of(group), 'zset')
  local times = turning and check_ring(group)
  if counts then check_hands(group) end
  if turning and ARGV[1] == 'mend' then mend_ring(group, times) end
end
local tokens = fits.wake and redis.call('LLEN', base .. 'wake') or 0
if tokens > 64 then out[#out + 1] = 'wake holds ' .. tokens .. ' tokens' end
return out
