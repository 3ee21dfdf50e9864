#!lua flags=allow-oom
-- workers beat: a worker says that it lives and what it holds; those not seen for `forget ms` are dropped (protocol §2),
-- and so is what another client has left with a score as far ahead.
-- KEYS[1] -> workers   KEYS[2] -> workers:info
-- ARGV[1] -> name      ARGV[2] -> JSON: host, process, queues, jobs in hand; '' says farewell   ARGV[3] -> forget ms
-- returns how many live
-- @include base
-- @include now
local seen, said = base .. 'workers', base .. 'workers:info'
redis.call('ZCARD', seen)
redis.call('HLEN', said)
if ARGV[2] == '' then
  redis.call('ZREM', seen, ARGV[1])
  redis.call('HDEL', said, ARGV[1])
else
  redis.call('ZADD', seen, now, ARGV[1])
  redis.call('HSET', said, ARGV[1], ARGV[2])
end
local function forget(from, upto)
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', seen, from, upto, 'LIMIT', 0, 100)) do
    redis.call('ZREM', seen, name)
    redis.call('HDEL', said, name)
  end
end
forget('-inf', now - tonumber(ARGV[3]))
forget('(' .. now + tonumber(ARGV[3]), '+inf')
return redis.call('ZCARD', seen)
