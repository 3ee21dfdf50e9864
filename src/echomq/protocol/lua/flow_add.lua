#!lua
-- flow add: the nodes of a flow that lie in this queue, parents before children, in one step (protocol §8). What
-- exists is left alone: a row, a kept result, a finished parent's guard, a child its parent has recorded.
-- KEYS[1] -> pending
-- ARGV -> five a node: id, payload, parent or '', link, children. link is fp or id, with ':queue' behind it when the
--   parent lies elsewhere; children is their number, 0 for a leaf. `skip` before a payload is never read.
-- returns a node, in order: 1 admitted or held, 0 it was there already
-- stays true: a parent is held with `:dependencies` = its direct children and carries no group.
-- @include kind
-- @include admit
-- @include flow
for i = 1, #ARGV, 5 do
  local refused = not_a_job(ARGV[i])
  if refused then return refused end
end
local answers, claimable = {}, 0
for i = 1, #ARGV, 5 do
  local id, payload, parent, link, children = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], tonumber(ARGV[i + 4])
  local row = row_of(id)
  local policy, queue = string.match(link, '^(%a*):?(.*)$')
  local recorded = parent ~= '' and queue == ''
    and (counted(row_of(parent), id) or redis.call('HEXISTS', row_of(parent) .. ':failed', id) == 1)
  if known(id) or recorded or redis.call('EXISTS', row .. ':dependencies') == 1 then
    answers[#answers + 1] = 0
  else
    if parent ~= '' then
      redis.call('HSET', row, 'parent', parent, 'parent_policy', policy)
      if queue ~= '' then redis.call('HSET', row, 'parent_queue', queue) end
    end
    if children > 0 then
      redis.call('HSET', row, 'state', 'awaiting_children', 'attempts', '0', 'payload', payload)
      redis.call('SET', row .. ':dependencies', children)
    else
      admit(id, payload)
      claimable = claimable + 1
    end
    answers[#answers + 1] = 1
  end
end
wake(claimable)
return answers
