#!lua flags=allow-oom
-- workers beat: a worker says that it lives and what it holds; those not seen for `forget ms` are dropped (protocol §2).
-- KEYS[1] -> workers   KEYS[2] -> workers:info
-- ARGV[1] -> name      ARGV[2] -> JSON: host, process, queues, jobs in hand; '' says farewell   ARGV[3] -> forget ms
-- returns how many live
-- @include now
if ARGV[2] == '' then
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
else
  redis.call('ZADD', KEYS[1], now, ARGV[1])
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[3]), 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[1], name)
  redis.call('HDEL', KEYS[2], name)
end
return redis.call('ZCARD', KEYS[1])
