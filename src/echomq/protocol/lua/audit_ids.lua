#!lua flags=no-writes
-- audit ids: which of these ids breaks an invariant, each looked at in one instant (protocol §12.1).
-- KEYS[1] -> any key of the queue
-- ARGV -> an id, the number of lanes that it was seen in, these lanes' groups; and so on
-- returns three lists: id, breach of each; id, how many it waits for, of each held parent; and the parent in this queue
--   of each of its children that it still waits for
-- @include lane
-- @include stranger
local NAMES = { pending = 'pending', active = 'active', schedule = 'scheduled', dead = 'dead' }
local out, held, kin = {}, {}, {}
-- awaited(id, parent): whether the parent waits for this child's end; a death that failed it is none (protocol §8).
local function awaited(id, parent)
  local row = row_of(parent)
  return redis.call('HEXISTS', row .. ':processed', id) == 0 and redis.call('HEXISTS', row .. ':unsuccessful', id) == 0
end
local function breach(id, text)
  out[#out + 1] = id
  out[#out + 1] = text
end
-- found(id, groups): the places that hold an id now, the row's name for the last, and a score that is not 0 where all
-- score 0.
local function found(id, groups)
  local places, name, off = {}, nil, nil
  local function look(set, place, state, scored)
    local score = redis.call('ZSCORE', set, id)
    if not score then return end
    places[#places + 1], name = place, state
    if not scored and tonumber(score) ~= 0 then off = score end
  end
  for _, set in ipairs({ 'pending', 'active', 'schedule', 'dead' }) do
    look(base .. set, set, NAMES[set], set == 'active' or set == 'schedule')
  end
  for _, group in ipairs(groups) do look(lane_of(group), 'lane ' .. group, 'pending', false) end
  return places, name, off
end
local i = 1
while i <= #ARGV do
  local id, groups, seen = ARGV[i], {}, {}
  local row = fields(id, 'state', 'group', 'parent', 'parent_queue')
  local function note(group)
    if not seen[group] then groups[#groups + 1] = group end
    seen[group] = true
  end
  for n = i + 2, i + 1 + tonumber(ARGV[i + 1]) do note(ARGV[n]) end
  if row and row[2] then note(row[2]) end
  i = i + 2 + tonumber(ARGV[i + 1])
  local places, name, off = found(id, groups)
  local where = table.concat(places, ', ')
  local state = row and row[1] or 'missing'
  if not row then
    if #places > 0 then breach(id, 'ghost: in ' .. where .. ' without a row') end
  elseif #places > 1 then
    breach(id, 'in several places: ' .. where)
  elseif #places == 0 then
    local waits = tonumber(redis.call('GET', row_of(id) .. ':dependencies') or nil) or 0
    if state ~= 'awaiting_children' then
      breach(id, 'stray: a row in no place, its state is ' .. state)
    elseif waits < 1 then
      breach(id, 'held, and waits for no child')
    elseif row[2] then
      breach(id, 'held, and carries group ' .. row[2])
    end
    if state == 'awaiting_children' and waits > 0 then
      held[#held + 1] = id
      held[#held + 1] = waits
    end
  elseif state ~= name then
    breach(id, 'state ' .. state .. ' but in ' .. where)
  elseif where == 'pending' and row[2] then
    breach(id, 'carries group ' .. row[2] .. ' but lies in flat pending')
  elseif name == 'pending' and where ~= 'pending' and where ~= 'lane ' .. (row[2] or '') then
    breach(id, 'carries ' .. (row[2] and 'group ' .. row[2] or 'no group') .. ' but lies in ' .. where)
  end
  if row and row[3] and (row[4] or OWN) == OWN and awaited(id, row[3]) then kin[#kin + 1] = row[3] end
  if row and off then breach(id, 'scores ' .. off .. ' in ' .. where .. ', not 0') end
end
return { out, held, kin }
