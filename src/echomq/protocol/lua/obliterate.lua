#!lua flags=allow-oom
-- obliterate: every key of a paused queue, at most `budget` rows a call (protocol §7).
-- KEYS[1] -> meta    KEYS[2] -> base key of the queue (any key of it)
-- ARGV[1] -> force or ''   ARGV[2] -> budget
-- returns 0 done, 1 more; EMQSTATE not paused; EMQSTATE active jobs present
-- @include lane
-- @include forget
if redis.call('HEXISTS', KEYS[1], 'paused') == 0 then return redis.error_reply('EMQSTATE not paused') end
if ARGV[1] ~= 'force' and redis.call('ZCARD', base .. 'active') > 0 then
  return redis.error_reply('EMQSTATE active jobs present')
end
local left = tonumber(ARGV[2])
-- erase(id): the row, its kept result, and the held parents that nothing else names.
local function erase(id)
  local link = redis.call('HMGET', row_of(id), 'parent', 'parent_queue')
  forget(id)
  redis.call('DEL', row_of(id) .. ':result')
  left = left - 1
  if link[1] and not link[2] and redis.call('HGET', row_of(link[1]), 'state') == 'awaiting_children' then
    erase(link[1])
  end
end
local function empty(set)
  while left > 0 do
    local ids = redis.call('ZRANGE', set, 0, math.min(left, 1000) - 1)
    if #ids == 0 then return end
    redis.call('ZREMRANGEBYRANK', set, 0, #ids - 1)
    for _, id in ipairs(ids) do erase(id) end
  end
end
for _, name in ipairs({ 'pending', 'schedule', 'active', 'dead' }) do empty(base .. name) end
local groups = {}
for _, name in ipairs({ 'glimit', 'gactive', 'gweight', 'lanes' }) do
  for _, group in ipairs(redis.call('HKEYS', base .. name)) do groups[#groups + 1] = group end
end
for _, group in ipairs(redis.call('LRANGE', base .. 'ring', 0, -1)) do groups[#groups + 1] = group end
for _, group in ipairs(redis.call('SMEMBERS', base .. 'paused')) do groups[#groups + 1] = group end
for _, group in ipairs(groups) do empty(lane_of(group)) end
for _, kind in ipairs({ 'repeat', 'cron' }) do
  while left > 0 do
    local names = redis.call('ZRANGE', base .. kind, 0, 999)
    if #names == 0 then break end
    for _, name in ipairs(names) do
      redis.call('DEL', base .. kind .. ':' .. name)
      redis.call('ZREM', base .. kind, name)
      left = left - 1
    end
  end
end
if left <= 0 then return 1 end
for _, name in ipairs({
  'ring', 'paused', 'glimit', 'gactive', 'gweight', 'lanes', 'wake', 'limiter', 'turn', 'workers', 'workers:info',
  'flow:outbox', 'flow:rejected', 'metrics:completed', 'metrics:failed', 'metrics:completed:data',
  'metrics:failed:data', 'meta',
}) do
  redis.call('DEL', base .. name)
end
return 0
