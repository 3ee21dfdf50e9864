#!lua flags=allow-oom
-- resume queue: claims are served again (protocol §7).
-- KEYS[1] -> meta
-- returns 1
-- @include ceiling
redis.call('HDEL', KEYS[1], 'paused')
wake(waiting_up_to(64))
return 1
