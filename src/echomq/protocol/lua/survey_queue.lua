#!lua flags=no-writes
-- survey queue: what an operator asks of a queue first, at one instant: numbers, heads, settings (protocol §7, ours).
-- KEYS[1] -> any key of the queue
-- ARGV[1] -> a worker that was seen within so many ms lives   ARGV[2] -> one that was seen within so many does whatever
--   it has in hand   ARGV[3] -> ms of a lease, where a worker does not say its own
-- returns now ms; how many are pending (flat), active, schedule, dead, repeat, cron; completed, failed; in flow:outbox,
--   flow:rejected; in the books of lanes that can hold claimable jobs; workers alive, known; leases that have lapsed;
--   jobs that the rate has let start and the ms until it is whole again; the oldest flat id and the earliest scheduled
--   id or ''; the first score of active, schedule, repeat, cron or ''; then field, value ... of meta
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
-- A worker with something in hand that is silent for longer than a lease does not live: its jobs are due to others.
-- Nor does what another client has left with a score in the future.
local alive = redis.call('ZCOUNT', base .. 'workers', now - tonumber(ARGV[1]), now + tonumber(ARGV[1]))
local quiet = { base .. 'workers', now - tonumber(ARGV[1]), now - tonumber(ARGV[2]), 'BYSCORE', 'WITHSCORES' }
local found = tonumber(ARGV[1]) > tonumber(ARGV[2]) and redis.call('ZRANGE', unpack(quiet)) or {}
for i = 1, #found, 2 do
  local read, info = pcall(cjson.decode, redis.call('HGET', base .. 'workers:info', found[i]) or '')
  if read and type(info) == 'table' and type(info.in_hand) == 'number' and info.in_hand > 0 then
    local lease = type(info.lease_ms) == 'number' and info.lease_ms or tonumber(ARGV[3])
    if now - tonumber(found[i + 1]) > lease then alive = alive - 1 end
  end
end
add(alive)
add(redis.call('ZCARD', base .. 'workers'))
add(redis.call('ZCOUNT', base .. 'active', '-inf', now))
add(tonumber(redis.call('GET', base .. 'limiter') or nil) or 0)
add(math.max(redis.call('PTTL', base .. 'limiter'), 0))
for _, name in ipairs({ 'pending', 'schedule' }) do add(redis.call('ZRANGE', base .. name, 0, 0)[1] or '') end
for _, name in ipairs({ 'active', 'schedule', 'repeat', 'cron' }) do
  add(redis.call('ZRANGE', base .. name, 0, 0, 'WITHSCORES')[2] or '')
end
for _, each in ipairs(redis.call('HGETALL', base .. 'meta')) do add(each) end
return out
