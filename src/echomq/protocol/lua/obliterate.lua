#!lua flags=allow-oom
-- obliterate: every key of a paused queue that can be reached from its sets and books, at most `budget` jobs and
-- recurrences a call (protocol §7). The books stay right from call to call.
-- KEYS[1] -> meta    KEYS[2] -> base key of the queue (any key of it)
-- ARGV[1] -> force or ''   ARGV[2] -> budget   ARGV[3] -> hold: `meta` stays, and with it the pause; optional
-- returns 0 done, 1 more; EMQSTATE not paused; EMQSTATE active jobs present
-- @include raze
-- @include razable
local refused = not_razable(ARGV[1])
if refused then return refused end
local left = tonumber(ARGV[2])
rightly_typed()
-- erase(id, in_hand): the row, its kept result, and the held parents above it, which no set names.
local function erase(id, in_hand)
  local link = fields(id, 'parent', 'parent_queue', 'group')
  raze(id)
  left = left - 1
  if not link then return end
  if in_hand and link[3] then
    keep_lane(link[3])
    hand_freed(link[3])
    ring_fix(link[3])
  end
  local above = link[1] and not link[2] and fields(link[1], 'state')
  if above and above[1] == 'awaiting_children' then erase(link[1]) end
end
local function empty(set, in_hand)
  while left > 0 do
    local ids = redis.call('ZRANGE', set, 0, math.min(left, 1000) - 1)
    if #ids == 0 then return end
    redis.call('ZREMRANGEBYRANK', set, 0, #ids - 1)
    for _, id in ipairs(ids) do erase(id, in_hand) end
  end
end
for _, name in ipairs(PLACES) do empty(base .. name, name == 'active') end
local groups = redis.call('LRANGE', base .. 'ring', 0, -1)
for _, name in ipairs(LANE_BOOKS) do
  for _, group in ipairs(redis.call('HKEYS', base .. name)) do groups[#groups + 1] = group end
end
for _, group in ipairs(redis.call('SMEMBERS', base .. 'paused')) do groups[#groups + 1] = group end
for _, group in ipairs(groups) do
  keep_lane(group)
  empty(lane_of(group))
  ring_fix(group)
end
for _, kind in ipairs(REGISTRIES) do
  while left > 0 do
    local names = redis.call('ZRANGE', base .. kind, 0, math.min(left, 1000) - 1)
    if #names == 0 then break end
    for _, name in ipairs(names) do
      redis.call('DEL', base .. kind .. ':' .. name)
      redis.call('ZREM', base .. kind, name)
      left = left - 1
    end
  end
end
if left <= 0 then return 1 end
redis.call('DEL', base .. 'ring', base .. 'paused')
for _, names in ipairs({ LANE_BOOKS, HINTS }) do
  for _, name in ipairs(names) do redis.call('DEL', base .. name) end
end
if ARGV[3] ~= 'hold' then redis.call('DEL', base .. 'meta') end
return 0
