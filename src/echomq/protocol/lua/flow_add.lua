#!lua
-- flow add: nodes of a flow that lie in this queue, parents before children, in one step (protocol §8). What exists is
-- left alone: a row, a kept result, a finished parent's guard, a child that its parent has recorded, a child of a
-- parent that is finished.
-- KEYS[1] -> pending
-- ARGV -> five a node: id, payload, parent or '', link, children. link is fp or id, then '+' when an earlier call of the
--   same add has just held the parent, else ':', then the parent's queue when it lies elsewhere; children is their
--   number, 0 for a leaf.
-- returns a node, in order: 1 admitted or held, 0 it was there already
-- stays true: a parent is held with `:dependencies` = its direct children and carries no group; a child that is not
--   going to run any more counts at once for a parent that is held anew, so that nothing is held for ever.
-- @include kind
-- @include admit
-- @include sound
-- @include flow
for i = 1, #ARGV, 5 do
  local refused = not_a_job(ARGV[i])
  if refused then return refused end
end
sound('pending')
local answers, held, claimable = {}, {}, 0
-- settled(parent, id): whether a parent in this queue needs the child no more.
local function settled(parent, id)
  local row = row_of(parent)
  return redis.call('EXISTS', row) == 0 or counted(row, id) or redis.call('HEXISTS', row .. ':failed', id) == 1
end
-- count_at_once(id, parent, queue): the end that a child had before its parent was held.
local function count_at_once(id, parent, queue)
  local row = fields(id, 'state', 'parent', 'last_error')
  if not row then
    signal_done(id, parent, queue, redis.call('GET', row_of(id) .. ':result') or '')
  elseif row[1] == 'dead' and row[2] == parent then
    signal_death(id, row[3] or '')
  end
end
for i = 1, #ARGV, 5 do
  local id, payload, parent, link, children = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], tonumber(ARGV[i + 4])
  local row = row_of(id)
  local policy, mark, queue = string.match(link, '^(%a*)([:+]?)(.*)$')
  local here = parent ~= '' and queue == ''
  if here and not held[parent] and settled(parent, id) then
    answers[#answers + 1] = 0
  elseif known(id) or redis.call('EXISTS', row .. ':dependencies') == 1 then
    answers[#answers + 1] = 0
    if held[parent] or mark == '+' then count_at_once(id, parent, not here and queue) end
  else
    if parent ~= '' then
      redis.call('HSET', row, 'parent', parent, 'parent_policy', policy)
      if not here then redis.call('HSET', row, 'parent_queue', queue) end
    end
    if children > 0 then
      redis.call('DEL', row .. ':processed', row .. ':failed', row .. ':unsuccessful')
      redis.call('HSET', row, 'state', 'awaiting_children', 'attempts', '0', 'payload', payload)
      redis.call('SET', row .. ':dependencies', children)
      held[id] = true
    else
      admit(id, payload)
      claimable = claimable + 1
    end
    answers[#answers + 1] = 1
  end
end
wake(claimable)
return answers
