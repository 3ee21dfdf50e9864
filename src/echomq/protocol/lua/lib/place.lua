-- Where a job lies, and how it comes back to where it can be claimed (protocol §5, §6).
-- @include rows
-- @include lane
-- place_of(id, group): 'active', 'pending' (its lane, when it has a group) or nil for any other place.
local function place_of(id, group)
  if redis.call('ZSCORE', base .. 'active', id) then return 'active' end
  if redis.call('ZSCORE', base .. 'pending', id) then return 'pending' end
  if group and redis.call('ZSCORE', lane_of(group), id) then return 'pending' end
  return nil
end
-- leave(id, group, place): out of active or pending, with the lane's books.
local function leave(id, group, place)
  if place == 'active' then
    redis.call('ZREM', base .. 'active', id)
    if group then hand_freed(group) end
  else
    redis.call('ZREM', base .. 'pending', id)
    if group then redis.call('ZREM', lane_of(group), id) end
  end
  if group then ring_fix(group) end
end
-- to_place(id, group): claimable again, flat or in its lane.
local function to_place(id, group)
  redis.call('HSET', row_of(id), 'state', 'pending')
  if group then
    redis.call('ZADD', lane_of(group), 0, id)
    ring_fix(group)
  else
    redis.call('ZADD', base .. 'pending', 0, id)
  end
end
