-- Where a job lies, and how it comes back to where it can be claimed (protocol §5, §6).
-- @include rows
-- @include lane
-- @include lock
-- place_of(id, group): 'active', 'pending' (its lane, when it has a group) or nil for any other place.
local function place_of(id, group)
  if redis.call('ZSCORE', base .. 'active', id) then return 'active' end
  if redis.call('ZSCORE', base .. 'pending', id) then return 'pending' end
  if group and redis.call('ZSCORE', lane_of(group), id) then return 'pending' end
  return nil
end
-- leave(id, group, place): out of active or pending, with the lane's books. Gives how many jobs of the lane that
-- makes claimable.
local function leave(id, group, place)
  local before = group and lane_served(group)
  if place == 'active' then
    redis.call('ZREM', base .. 'active', id)
    unlock(id)
    if group then hand_freed(group) end
  else
    redis.call('ZREM', base .. 'pending', id)
    if group then redis.call('ZREM', lane_of(group), id) end
  end
  return group and ring_fix(group, before) or 0
end
-- to_place(id, group): claimable again, flat or in its lane. Gives how many jobs that makes claimable.
local function to_place(id, group)
  redis.call('HSET', row_of(id), 'state', 'pending')
  if not group then return redis.call('ZADD', base .. 'pending', 0, id) end
  local before = lane_served(group)
  redis.call('ZADD', lane_of(group), 0, id)
  return ring_fix(group, before)
end
