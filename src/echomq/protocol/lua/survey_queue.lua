#!lua flags=no-writes
-- survey queue: what an operator asks of a queue first, at one instant: numbers, heads, settings (protocol §7, ours).
-- KEYS[1] -> any key of the queue
-- ARGV[1] -> a worker that was seen within so many ms lives
-- returns now ms; how many are pending (flat), active, schedule, dead, repeat, cron; completed, failed; in flow:outbox,
--   flow:rejected; in the books of lanes that can hold claimable jobs; workers alive, known; the oldest flat id and the
--   earliest scheduled id or ''; the first score of active, schedule, repeat, cron or ''; then field, value ... of meta
-- @include now
-- @include base
local out = { now }
local function add(value) out[#out + 1] = value end
for _, name in ipairs({ 'pending', 'active', 'schedule', 'dead', 'repeat', 'cron' }) do
  add(redis.call('ZCARD', base .. name))
end
for _, name in ipairs({ 'completed', 'failed' }) do
  add(tonumber(redis.call('HGET', base .. 'metrics:' .. name, 'count') or nil) or 0)
end
for _, name in ipairs({ 'outbox', 'rejected' }) do add(redis.call('LLEN', base .. 'flow:' .. name)) end
add(redis.call('LLEN', base .. 'ring') + redis.call('SCARD', base .. 'paused') + redis.call('HLEN', base .. 'glimit'))
add(redis.call('ZCOUNT', base .. 'workers', now - tonumber(ARGV[1]), '+inf'))
add(redis.call('ZCARD', base .. 'workers'))
for _, name in ipairs({ 'pending', 'schedule' }) do add(redis.call('ZRANGE', base .. name, 0, 0)[1] or '') end
for _, name in ipairs({ 'active', 'schedule', 'repeat', 'cron' }) do
  add(redis.call('ZRANGE', base .. name, 0, 0, 'WITHSCORES')[2] or '')
end
for _, each in ipairs(redis.call('HGETALL', base .. 'meta')) do add(each) end
return out
