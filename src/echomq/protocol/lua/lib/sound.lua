-- A script that fails midway is not rolled back, so nothing may fail once a job is out of its place. sound(set, ...)
-- reads the sets that the call is going to write, and fails there, before its first write, when one holds another type;
-- sound_lane(group) does it for a lane and the ring.
-- @include base
-- @include lane
local function sound(...)
  for _, name in ipairs({ ... }) do redis.call('ZCARD', base .. name) end
end
local function sound_lane(group)
  if not group then return end
  redis.call('LLEN', base .. 'ring')
  if lane_served(group) > 0 then return end
  -- It may not have looked at all of them, which a job more in the lane will change.
  redis.call('SISMEMBER', base .. 'paused', group)
  redis.call('HGET', base .. 'glimit', group)
  redis.call('HGET', base .. 'gactive', group)
end
