#!lua flags=allow-oom
-- resume queue: claims are served again (protocol §7).
-- KEYS[1] -> meta
-- returns 1
-- @include gate
if redis.call('HDEL', KEYS[1], 'paused') == 1 then wake(claimable()) end
return 1
