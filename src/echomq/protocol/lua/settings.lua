#!lua flags=allow-oom
-- settings: fields of `meta`: pause, ceiling, rate and retention of the queue; an empty value removes one (protocol §7).
-- A rate window that is open ends no later than one of the new period would.
-- KEYS[1] -> meta
-- ARGV -> field, value ...
-- returns 1
-- @include gate
-- @include natural
local before = claimable()
for i = 1, #ARGV, 2 do
  if ARGV[i + 1] == '' then redis.call('HDEL', KEYS[1], ARGV[i]) else redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
local after = claimable()
local ends = natural(redis.call('HGET', KEYS[1], 'period_ms') or nil)
if ends and redis.call('PTTL', base .. 'limiter') > ends then redis.call('PEXPIRE', base .. 'limiter', ends) end
wake(after - before)
return 1
