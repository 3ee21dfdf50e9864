#!lua
-- flow add: nodes of a flow that lie in this queue, parents before children, in one step (protocol §8). What is there of
-- it is left alone: a row, a kept result, a finished parent's guard, a child that its parent has recorded, a child of a
-- parent that is finished.
-- KEYS[1] -> pending
-- ARGV -> five a node: id, payload, parent or '', link, children. link is fp or id, then the parent's queue when it lies
--   elsewhere; children is their number, 0 for a leaf.
-- returns a node, in order: 1 admitted or held, 0 it was there already; with nothing written EMQSTATE flow add <id> not
--   of this flow, EMQSTATE flow add <id> not a parent, EMQSTATE flow add <id> has other children
-- stays true: a parent is held with `:dependencies` = its direct children and carries no group; whatever it waits for
--   has its row here as its child, or counts at once because it has ended, so that nothing is held for ever.
-- @include kind
-- @include admit
-- @include sound
-- @include flow
-- @include stranger
for i = 1, #ARGV, 5 do
  local refused = not_a_job(ARGV[i])
  if refused then return refused end
end
sound('pending')
-- settled(parent, id): whether a parent in this queue needs the child no more.
local function settled(parent, id)
  local row = row_of(parent)
  return redis.call('EXISTS', row) == 0 or counted(row, id) or redis.call('HEXISTS', row .. ':failed', id) == 1
end
-- sound_count(id, parent, queue): reads what count_at_once writes, up through the parents that this call is going to hold.
local links = {}
local function sound_count(id, parent, queue)
  local row = fields(id, 'state')
  if not row then redis.call('GET', row_of(id) .. ':result') end
  if not row or row[1] == 'dead' then sound_above(id, { parent, row and 'fp' or 'id', queue ~= '' and queue }, links) end
end
local LEFT, THERE, NEW = 1, 2, 3
local held, plan, fresh = {}, {}, {}
for i = 1, #ARGV, 5 do
  local id, parent, children = ARGV[i], ARGV[i + 2], tonumber(ARGV[i + 4])
  local queue = string.sub(ARGV[i + 3], 3)
  if parent ~= '' and queue == '' and not held[parent] and settled(parent, id) then
    plan[i] = LEFT
  elseif known(id) or redis.call('EXISTS', row_of(id) .. ':dependencies') == 1 then
    local why = stranger(id, parent, queue, children)
    if why then return redis.error_reply('EMQSTATE flow add ' .. id .. ' ' .. why) end
    plan[i] = THERE
    if parent ~= '' then sound_count(id, parent, queue) end
  else
    plan[i] = NEW
    fresh[parent] = (fresh[parent] or 0) + 1
    if children > 0 then
      held[id] = true
      links[id] = { parent ~= '' and parent, string.sub(ARGV[i + 3], 1, 2), queue ~= '' and queue }
    end
  end
end
-- A parent that is here with its children was added with them in one step: it waits for others when all of these are new.
for i = 1, #ARGV, 5 do
  local children = tonumber(ARGV[i + 4])
  if plan[i] == THERE and children > 0 and fresh[ARGV[i]] == children then
    return redis.error_reply('EMQSTATE flow add ' .. ARGV[i] .. ' has other children')
  end
end
-- count_at_once(id, parent, queue): the end that a child had before its parent was held, or that the call of an add that
-- was cut short would have told it.
local function count_at_once(id, parent, queue)
  local row = fields(id, 'state', 'last_error')
  if not row then
    signal_done(id, parent, queue ~= '' and queue, redis.call('GET', row_of(id) .. ':result') or '')
  elseif row[1] == 'dead' then
    signal_death(id, row[2] or '')
  end
end
local answers, claimable = {}, 0
for i = 1, #ARGV, 5 do
  local id, payload, parent, children = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 4])
  local policy, queue = string.sub(ARGV[i + 3], 1, 2), string.sub(ARGV[i + 3], 3)
  local row = row_of(id)
  answers[#answers + 1] = plan[i] == NEW and 1 or 0
  if plan[i] == THERE and parent ~= '' then
    count_at_once(id, parent, queue)
  elseif plan[i] == NEW then
    if parent ~= '' then
      redis.call('HSET', row, 'parent', parent, 'parent_policy', policy)
      if queue ~= '' then redis.call('HSET', row, 'parent_queue', queue) end
    end
    if children > 0 then
      redis.call('DEL', row .. ':processed', row .. ':failed', row .. ':unsuccessful')
      redis.call('HSET', row, 'state', 'awaiting_children', 'attempts', '0', 'payload', payload)
      redis.call('SET', row .. ':dependencies', children)
    else
      admit(id, payload)
      claimable = claimable + 1
    end
  end
end
wake(claimable)
return answers
