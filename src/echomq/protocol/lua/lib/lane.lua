-- The books of a lane (protocol §6): the ring holds exactly the lanes that are nonempty, not paused and below
-- their limit, each once; gactive counts a group's jobs in hand.
-- @include base
-- @include mind
local function lane_of(group) return base .. 'g:' .. group .. ':pending' end
-- lane_served(group): how many of its jobs could be claimed now.
local function lane_served(group)
  local depth = redis.call('ZCARD', lane_of(group))
  if depth == 0 or redis.call('SISMEMBER', base .. 'paused', group) == 1 then return 0 end
  local limit = tonumber(redis.call('HGET', base .. 'glimit', group) or nil)
  if not limit then return depth end
  local hands = tonumber(redis.call('HGET', base .. 'gactive', group) or nil) or 0
  return math.max(math.min(depth, limit - hands), 0)
end
local function lane_open(group) return lane_served(group) > 0 end
-- ring_fix(group, before): after anything that may have opened or closed the lane; `before` is what it served then,
-- when the caller knows. Gives how many more it serves now: as many tokens are due (protocol §12.2).
local function ring_fix(group, before)
  local served = lane_served(group)
  if served > 0 and before ~= nil and before > 0 then return math.max(served - before, 0) end
  local on = redis.call('LPOS', base .. 'ring', group)
  if served > 0 then
    if not on then redis.call('RPUSH', base .. 'ring', group) end
  elseif on then
    redis.call('LREM', base .. 'ring', 0, group)
  end
  return math.max(served - (before or 0), 0)
end
local function hand_taken(group) mind('HINCRBY', base .. 'gactive', group, 1) end
-- hand_freed(group): one job of the group left hand; call ring_fix when the lane's content is settled.
local function hand_freed(group)
  if (mind('HINCRBY', base .. 'gactive', group, -1) or 0) <= 0 then mind('HDEL', base .. 'gactive', group) end
end
