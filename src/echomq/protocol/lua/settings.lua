#!lua flags=allow-oom
-- settings: fields of `meta`: ceiling, rate and retention of the queue; an empty value removes one (protocol §7).
-- KEYS[1] -> meta
-- ARGV -> field, value ...
-- returns 1
-- @include ceiling
for i = 1, #ARGV, 2 do
  if ARGV[i + 1] == '' then redis.call('HDEL', KEYS[1], ARGV[i]) else redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
wake(waiting_up_to(64))
return 1
