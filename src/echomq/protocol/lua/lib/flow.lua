-- Signals from a flow's children to their parents (protocol §8). A parent in this queue is settled in the same step,
-- one elsewhere through the outbox. A child lowers the count once; a signal to a parent that is gone is dropped.
-- @include rows
-- @include now
-- @include wake
-- bury_row(id, reason): into the morgue, without a signal; the caller has taken it out of its place.
local function bury_row(id, reason)
  local row = row_of(id)
  redis.call('HSET', row, 'state', 'dead', 'last_error', reason, 'died_ms', string.format('%.0f', now))
  redis.call('ZADD', base .. 'dead', 0, id)
  redis.call('HINCRBY', base .. 'metrics:failed', 'count', 1)
  local key = redis.call('HGET', row, 'dedup')
  if key and redis.call('GET', base .. 'de:' .. key) == id then redis.call('DEL', base .. 'de:' .. key) end
end
local function count_down(parent)
  local row = row_of(parent)
  local left = (tonumber(redis.call('GET', row .. ':dependencies') or nil) or 0) - 1
  if left < 0 then return end
  redis.call('SET', row .. ':dependencies', string.format('%.0f', left), 'KEEPTTL')
  if left == 0 and redis.call('HGET', row, 'state') == 'awaiting_children' then
    redis.call('HSET', row, 'state', 'pending')
    redis.call('ZADD', base .. 'pending', 0, parent)
    wake(1)
  end
end
local function counted(row, child)
  return redis.call('HEXISTS', row .. ':processed', child) == 1
    or redis.call('HEXISTS', row .. ':unsuccessful', child) == 1
end
-- child_done(parent, child, result): a child that had failed its parent and now succeeds counts now.
local function child_done(parent, child, result)
  local row = row_of(parent)
  if not fields(parent, 'state') or counted(row, child) then return end
  redis.call('HDEL', row .. ':failed', child)
  redis.call('HSET', row .. ':processed', child, result)
  count_down(parent)
end
-- child_dead(parent, child, policy, reason): true when the parent died of it.
local function child_dead(parent, child, policy, reason)
  local row = row_of(parent)
  local known = fields(parent, 'state')
  if not known or counted(row, child) then return false end
  if policy == 'id' then
    if redis.call('HEXISTS', row .. ':failed', child) == 1 then return false end
    redis.call('HSET', row .. ':unsuccessful', child, reason)
    count_down(parent)
    return false
  end
  redis.call('HSET', row .. ':failed', child, reason)
  if known[1] ~= 'awaiting_children' then return false end
  bury_row(parent, 'child ' .. child .. ' failed: ' .. reason)
  return true
end
local function signal_done(id, parent, queue, result)
  if queue then
    redis.call('RPUSH', base .. 'flow:outbox', table.concat({ queue, parent, id, result }, '\0'))
  else
    child_done(parent, id, result)
  end
end
-- signal_death(id, reason): up through every level; reads the row, so before it is deleted.
local function signal_death(id, reason)
  while true do
    local link = redis.call('HMGET', row_of(id), 'parent', 'parent_policy', 'parent_queue')
    local parent, policy = link[1], link[2] == 'id' and 'id' or 'fp'
    if not parent then return end
    if link[3] then
      local entry = { '', 'fail', link[3], parent, id, policy, reason }
      redis.call('RPUSH', base .. 'flow:outbox', table.concat(entry, '\0'))
      return
    end
    if not child_dead(parent, id, policy, reason) then return end
    id, reason = parent, redis.call('HGET', row_of(parent), 'last_error')
  end
end
