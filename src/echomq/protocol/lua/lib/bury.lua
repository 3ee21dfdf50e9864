-- bury(id, reason): into the morgue; the caller has taken it out of its place (protocol §3, §5).
-- @include rows
-- @include now
local function bury(id, reason)
  redis.call('HSET', row_of(id), 'state', 'dead', 'last_error', reason, 'died_ms', string.format('%.0f', now))
  redis.call('ZADD', base .. 'dead', 0, id)
  redis.call('HINCRBY', base .. 'metrics:failed', 'count', 1)
end
