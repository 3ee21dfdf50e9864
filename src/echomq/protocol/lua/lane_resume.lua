#!lua flags=allow-oom
-- resume lane: claimable again, with its backlog (protocol §6).
-- KEYS[1] -> paused   KEYS[2] -> ring   KEYS[3] -> glimit   KEYS[4] -> gactive   KEYS[5] -> wake
-- ARGV[1] -> base     ARGV[2] -> group
-- returns 1
-- @include lane
-- @include sound
-- @include wake
sound_lane(ARGV[2])
if redis.call('SREM', base .. 'paused', ARGV[2]) == 1 then wake(ring_fix(ARGV[2], 0)) end
return 1
