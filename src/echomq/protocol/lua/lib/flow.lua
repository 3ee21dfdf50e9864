-- Signals from a flow's children to their parents (protocol §8). A parent in this queue is settled in the same step,
-- one elsewhere through the outbox. A child lowers the count once; a signal to a parent that is gone is dropped.
-- @include rows
-- @include now
-- @include sound
-- @include wake
-- @include tell
-- @include owe
-- @include free_key
-- bury_row(id, reason, followed): into the morgue, without a signal to its parent; the caller has taken it out of its
-- place. `followed`: the caller admits what is to follow its death, so nothing is owed.
local function bury_row(id, reason, followed)
  local row = row_of(id)
  redis.call('ZADD', base .. 'dead', 0, id)
  redis.call('HSET', row, 'state', 'dead', 'last_error', reason, 'died_ms', string.format('%.0f', now))
  mind('HINCRBY', base .. 'metrics:failed', 'count', 1)
  free_key(id, redis.call('HGET', row, 'dedup'))
  if not followed then owe(id, reason) end
  tell({ id })
end
-- standing(parent): the state of a flow's parent, or nil when it is gone; a row without books is no parent.
local function standing(parent)
  local row = fields(parent, 'state')
  if row and redis.call('EXISTS', row_of(parent) .. ':dependencies') == 1 then return row[1] or '' end
  return nil
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
-- counted(row, child): whether the parent's count was lowered for this child. A death that fails the parent is
-- recorded without lowering it, so a parent that was reprocessed is held until the child has another end.
local function counted(row, child)
  return redis.call('HEXISTS', row .. ':processed', child) == 1
    or redis.call('HEXISTS', row .. ':unsuccessful', child) == 1
end
-- heard_by(parent, child): the state of a parent that is to hear of this child, or nil. Reads every key of its books, and
-- fails, with nothing written, where one holds another type: a child that is recorded and not counted would hold it for
-- ever.
local function heard_by(parent, child)
  local state = standing(parent)
  local row = row_of(parent)
  if not state or counted(row, child) then return nil end
  redis.call('GET', row .. ':dependencies')
  redis.call('HLEN', row .. ':failed')
  return state
end
-- child_done(parent, child, result): a child that had failed its parent and now succeeds counts now.
local function child_done(parent, child, result)
  if not heard_by(parent, child) then return end
  sound('pending')
  local row = row_of(parent)
  redis.call('HDEL', row .. ':failed', child)
  redis.call('HSET', row .. ':processed', child, result)
  count_down(parent)
end
-- child_dead(parent, child, policy, reason): true when the parent died of it. The first death is the one on record,
-- unless a later one kills the parent again.
local function child_dead(parent, child, policy, reason)
  local row = row_of(parent)
  local state = heard_by(parent, child)
  if not state then return false end
  sound('pending', 'dead')
  if policy == 'id' then
    if redis.call('HEXISTS', row .. ':failed', child) == 1 then return false end
    redis.call('HSET', row .. ':unsuccessful', child, reason)
    count_down(parent)
    return false
  end
  if state ~= 'awaiting_children' then
    redis.call('HSETNX', row .. ':failed', child, reason)
    return false
  end
  redis.call('HSET', row .. ':failed', child, reason)
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
-- sound_above(id, link, fresh): reads whatever the signal of a death writes, up through every level, and fails there,
-- with nothing written, where a key holds another type. `link` is {parent, policy, queue or false}; `fresh` has the links
-- of parents that the call is going to hold and that have nothing to read yet.
local function sound_above(id, link, fresh)
  local seen = {}
  while link and link[1] do
    if link[3] then return redis.call('LLEN', base .. 'flow:outbox') end
    seen[id] = true
    local parent = link[1]
    local new = fresh and fresh[parent]
    local state = new and 'awaiting_children' or heard_by(parent, id)
    if state then sound('pending', 'dead') end
    if state ~= 'awaiting_children' or link[2] == 'id' or seen[parent] then return end
    id, link = parent, new or fields(parent, 'parent', 'parent_policy', 'parent_queue')
  end
end
-- sound_death(id): the same for the death of a job, before its first write; whether it has a parent to be told.
local function sound_death(id)
  local link = fields(id, 'parent', 'parent_policy', 'parent_queue')
  if not link or not link[1] then return false end
  sound_above(id, link)
  return true
end
-- policy_of(text): what the death of a child means to its parent: id, else fp. death_entry(...): the signal of it, as it
-- lies in the outbox.
local function policy_of(text) return text == 'id' and 'id' or 'fp' end
local function death_entry(id, queue, parent, policy, reason)
  return table.concat({ '', 'fail', queue, parent, id, policy, reason }, '\0')
end
-- signal_death(id, reason): up through every level; reads the row, so before it is deleted. Gives the entry that it has
-- left in the outbox, if any.
local function signal_death(id, reason)
  while true do
    local link = fields(id, 'parent', 'parent_policy', 'parent_queue')
    if not link or not link[1] then return end
    local parent, policy = link[1], policy_of(link[2])
    if link[3] then
      local entry = death_entry(id, link[3], parent, policy, reason)
      redis.call('RPUSH', base .. 'flow:outbox', entry)
      return entry
    end
    if not child_dead(parent, id, policy, reason) then return end
    id, reason = parent, redis.call('HGET', row_of(parent), 'last_error')
  end
end
