#!lua flags=allow-oom
-- resume lane: claimable again, with its backlog (protocol §6).
-- KEYS[1] -> paused   KEYS[2] -> ring   KEYS[3] -> glimit   KEYS[4] -> gactive   KEYS[5] -> wake
-- ARGV[1] -> base     ARGV[2] -> group
-- returns 1
-- @include opened
if redis.call('SREM', KEYS[1], ARGV[2]) == 1 then
  ring_fix(ARGV[2])
  wake_lane(ARGV[2])
end
return 1
