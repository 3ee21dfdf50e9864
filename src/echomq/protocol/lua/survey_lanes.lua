#!lua flags=no-writes
-- survey lanes: the books of some lanes, at one instant (protocol §6, §7, ours).
-- KEYS[1] -> any key of the queue
-- ARGV -> group ...
-- returns a list a lane: group, depth, its oldest id or '', in hand, limit, weight, text (nil when absent), 1 paused or
--   0, how many could be claimed now
-- @include lane
local out = {}
for i, group in ipairs(ARGV) do
  local lane = lane_of(group)
  out[i] = {
    group, redis.call('ZCARD', lane), redis.call('ZRANGE', lane, 0, 0)[1] or '',
    redis.call('HGET', base .. 'gactive', group), redis.call('HGET', base .. 'glimit', group),
    redis.call('HGET', base .. 'gweight', group), redis.call('HGET', base .. 'lanes', group),
    redis.call('SISMEMBER', base .. 'paused', group), lane_served(group),
  }
end
return out
