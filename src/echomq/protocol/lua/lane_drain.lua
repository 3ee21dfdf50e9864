#!lua flags=allow-oom
-- drain lane: deletes up to `limit` of its claimable jobs; those in hand and its siblings stay (protocol §6, §8).
-- KEYS[1] -> base key of the queue (any key of it)   KEYS[2] -> lane   KEYS[3] -> ring
-- ARGV[1] -> group   ARGV[2] -> limit
-- returns how many; fewer than the limit when nothing is left
-- @include place
-- @include forget
-- @include sound
local lane = lane_of(ARGV[1])
sound_lane(ARGV[1])
local ids = redis.call('ZRANGE', lane, 0, tonumber(ARGV[2]) - 1)
for _, id in ipairs(ids) do
  redis.call('ZREM', lane, id)
  forget(id, 'drained')
end
ring_fix(ARGV[1])
return #ids
