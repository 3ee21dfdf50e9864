#!lua flags=allow-oom
-- drain lane: deletes up to `limit` of its claimable jobs; those in hand and its siblings stay (protocol §6, §8).
-- KEYS[1] -> base key of the queue (any key of it)   KEYS[2] -> lane   KEYS[3] -> ring
-- ARGV[1] -> group   ARGV[2] -> limit
-- returns how many; fewer than the limit when nothing is left, but jobs whose parent cannot be told, for a key of its
--   books holds another type: these stay
-- @include lane
-- @include emptied
-- @include sound
sound_lane(ARGV[1])
local drained = emptied(lane_of(ARGV[1]), tonumber(ARGV[2]))
ring_fix(ARGV[1])
return drained
