#!lua flags=allow-oom
-- resume queue: claims are served again (protocol §7).
-- KEYS[1] -> meta
-- returns 1
-- @include wake
redis.call('HDEL', KEYS[1], 'paused')
wake(redis.call('ZCARD', base .. 'pending') + redis.call('LLEN', base .. 'ring'))
return 1
