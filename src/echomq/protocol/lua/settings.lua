#!lua flags=allow-oom
-- settings: fields of `meta`: pause, ceiling, rate and retention of the queue; an empty value removes one (protocol §7).
-- A rate window that is open ends no later than one of the new period would; where that cuts it short, a token tells
-- whoever sleeps until its old end.
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
local cut = ends and redis.call('PTTL', base .. 'limiter') > ends
if cut then redis.call('PEXPIRE', base .. 'limiter', ends) end
wake(math.max(after - before, cut and 1 or 0))
return 1
