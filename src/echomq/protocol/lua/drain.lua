#!lua flags=allow-oom
-- drain: deletes up to `limit` flat claimable jobs, and scheduled ones when asked; active, lanes and recurrences stay
-- (protocol §7, §8).
-- KEYS[1] -> base key of the queue (any key of it)   KEYS[2] -> pending   KEYS[3] -> schedule, optional
-- ARGV[1] -> limit
-- returns how many; fewer than the limit when nothing is left, not even a parent that a drained child has released
-- @include forget
-- @include sound
sound('pending', 'schedule', 'dead')
local left = tonumber(ARGV[1])
local drained = 0
local function empty(set)
  while drained < left do
    local ids = redis.call('ZRANGE', set, 0, math.min(left - drained, 1000) - 1)
    if #ids == 0 then return end
    redis.call('ZREM', set, unpack(ids))
    for _, id in ipairs(ids) do forget(id, 'drained') end
    drained = drained + #ids
  end
end
if KEYS[3] then empty(base .. 'schedule') end
empty(base .. 'pending')
return drained
