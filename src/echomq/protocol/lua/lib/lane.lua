-- The books of a lane (protocol §6): the ring holds exactly the lanes that are nonempty, not paused and below
-- their limit, each once; gactive counts a group's jobs in hand.
-- @include base
local function lane_of(group) return base .. 'g:' .. group .. ':pending' end
local function lane_open(group)
  if redis.call('ZCARD', lane_of(group)) == 0 then return false end
  if redis.call('SISMEMBER', base .. 'paused', group) == 1 then return false end
  local limit = tonumber(redis.call('HGET', base .. 'glimit', group) or nil)
  if not limit then return true end
  return (tonumber(redis.call('HGET', base .. 'gactive', group) or nil) or 0) < limit
end
-- ring_fix(group): after anything that may have opened or closed the lane.
local function ring_fix(group)
  local on = redis.call('LPOS', base .. 'ring', group)
  if lane_open(group) then
    if not on then redis.call('RPUSH', base .. 'ring', group) end
  elseif on then
    redis.call('LREM', base .. 'ring', 0, group)
  end
end
local function hand_taken(group) redis.call('HINCRBY', base .. 'gactive', group, 1) end
-- hand_freed(group): one job of the group left hand; call ring_fix when the lane's content is settled.
local function hand_freed(group)
  if redis.call('HINCRBY', base .. 'gactive', group, -1) <= 0 then
    redis.call('HDEL', base .. 'gactive', group)
  end
end
