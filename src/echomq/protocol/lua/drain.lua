#!lua flags=allow-oom
-- drain: deletes up to `limit` flat claimable jobs, and scheduled ones when asked; active, lanes and recurrences stay
-- (protocol §7, §8).
-- KEYS[1] -> base key of the queue (any key of it)   KEYS[2] -> pending   KEYS[3] -> schedule, optional
-- ARGV[1] -> limit
-- returns how many; fewer than the limit when nothing is left, not even a parent that a drained child has released, but
--   jobs whose parent cannot be told, for a key of its books holds another type: these stay
-- @include emptied
-- @include sound
sound('pending', 'schedule', 'dead')
local left = tonumber(ARGV[1])
local drained = KEYS[3] and emptied(base .. 'schedule', left) or 0
return drained + emptied(base .. 'pending', left - drained)
