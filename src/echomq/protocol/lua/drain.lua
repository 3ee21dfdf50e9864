#!lua flags=allow-oom
-- drain: deletes up to `limit` flat claimable jobs, and scheduled ones when asked; active, lanes and recurrences stay
-- (protocol §7, §8).
-- KEYS[1] -> base key of the queue (any key of it)   KEYS[2] -> pending   KEYS[3] -> schedule, optional
-- ARGV[1] -> limit
-- returns how many
-- @include forget
local drained = 0
for i = 2, #KEYS do
  local ids = redis.call('ZRANGE', KEYS[i], 0, tonumber(ARGV[1]) - drained - 1)
  if tonumber(ARGV[1]) - drained < 1 then break end
  for _, id in ipairs(ids) do
    redis.call('ZREM', KEYS[i], id)
    forget(id, 'drained')
  end
  drained = drained + #ids
end
return drained
