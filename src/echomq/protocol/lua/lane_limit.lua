#!lua flags=allow-oom
-- limit lane: how many of its jobs may be in hand at once (protocol §6).
-- KEYS[1] -> glimit   KEYS[2] -> gactive   KEYS[3] -> ring   KEYS[4] -> paused   KEYS[5] -> wake
-- ARGV[1] -> base     ARGV[2] -> group     ARGV[3] -> n >= 1, or 0 to lift it
-- returns 1; ERR for an n that is no integer
-- @include natural
-- @include lane
-- @include sound
-- @include wake
local limit = natural(ARGV[3])
if not limit then return redis.error_reply('ERR limit must be a non-negative integer') end
sound_lane(ARGV[2])
redis.call('HGET', base .. 'gactive', ARGV[2])
local before = lane_served(ARGV[2])
if limit == 0 then
  redis.call('HDEL', base .. 'glimit', ARGV[2])
else
  redis.call('HSET', base .. 'glimit', ARGV[2], ARGV[3])
end
wake(ring_fix(ARGV[2], before))
return 1
