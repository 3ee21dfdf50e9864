#!lua flags=allow-oom
-- pause lane: its jobs stay where they are, none is claimed (protocol §6).
-- KEYS[1] -> paused   KEYS[2] -> ring
-- ARGV[1] -> group
-- returns 1
-- @include lane
-- @include sound
sound_lane(ARGV[1])
redis.call('SADD', base .. 'paused', ARGV[1])
ring_fix(ARGV[1])
return 1
