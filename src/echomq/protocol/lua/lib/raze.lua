-- What the steps of obliterate share (protocol §7).
-- PLACES, REGISTRIES, LANE_BOOKS, HINTS: the names that go in obliterate alone, with the rows that they lead to.
-- rightly_typed(): a set or book of another type leads to nothing, and would be in the way: it goes.
-- raze(id): the row, every subkey, its kept result and its deduplication key; the caller has taken it out of its place.
-- @include lane
-- @include forget
local PLACES = { 'active', 'pending', 'schedule', 'dead' }
local REGISTRIES = { 'repeat', 'cron' }
local LANE_BOOKS = { 'glimit', 'gactive', 'gweight', 'lanes' }
local HINTS = {
  'wake', 'limiter', 'turn', 'workers', 'workers:info', 'flow:outbox', 'flow:rejected', 'owed', 'metrics:completed',
  'metrics:failed', 'metrics:completed:data', 'metrics:failed:data',
}
local function keep_only(kind, name)
  if redis.call('TYPE', base .. name).ok ~= kind then redis.call('DEL', base .. name) end
end
local function keep_lane(group) keep_only('zset', 'g:' .. group .. ':pending') end
local function rightly_typed()
  for _, name in ipairs(PLACES) do keep_only('zset', name) end
  for _, name in ipairs(REGISTRIES) do keep_only('zset', name) end
  for _, name in ipairs(LANE_BOOKS) do keep_only('hash', name) end
  keep_only('list', 'ring')
  keep_only('set', 'paused')
end
local function raze(id)
  forget(id)
  redis.call('DEL', row_of(id) .. ':result')
end
