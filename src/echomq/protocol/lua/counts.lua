#!lua flags=no-writes
-- counts: how many jobs lie where, and how many ended how (protocol §7).
-- KEYS[1] -> pending (any key of the queue)
-- returns pending (flat), active, schedule, dead, completed, failed
-- @include base
local counts = {}
for i, name in ipairs({ 'pending', 'active', 'schedule', 'dead' }) do counts[i] = redis.call('ZCARD', base .. name) end
for i, name in ipairs({ 'completed', 'failed' }) do
  counts[i + 4] = tonumber(redis.call('HGET', base .. 'metrics:' .. name, 'count') or nil) or 0
end
return counts
