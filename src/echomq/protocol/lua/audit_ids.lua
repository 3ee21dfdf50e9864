#!lua flags=no-writes
-- audit ids: which of these ids breaks an invariant, each looked at in one instant (protocol §12.1).
-- KEYS[1] -> any key of the queue
-- ARGV -> an id, the number of lanes that it was seen in, these lanes' groups; and so on
-- returns three lists: id, breach of each; id, how many it waits for, of each held parent; and the parent in this queue
--   of each of its children that it still waits for
-- A place that holds another type is no place here: audit_types names it.
-- @include lane
-- @include stranger
local NAMES = { pending = 'pending', active = 'active', schedule = 'scheduled', dead = 'dead' }
local BOOKS = { dependencies = 'string', processed = 'hash', failed = 'hash', unsuccessful = 'hash' }
local out, held, kin = {}, {}, {}
-- read(...): the reply, or nil where the key holds another type.
local function read(...)
  local value = redis.pcall(...)
  if type(value) ~= 'table' or not value.err then return value end
  if string.find(value.err, 'WRONGTYPE', 1, true) ~= 1 then error(value.err) end
  return nil
end
local function recorded(parent, book, id) return read('HEXISTS', row_of(parent) .. ':' .. book, id) == 1 end
-- awaited(id, parent): whether the parent waits for this child's end; a death that failed it is none (protocol §8).
local function awaited(id, parent)
  return not recorded(parent, 'processed', id) and not recorded(parent, 'unsuccessful', id)
end
-- untold(id, parent): whether the parent waits although this child, whose death had to kill it, is dead, and has nothing
-- of it on record; a parent that was reprocessed has.
local function untold(id, parent)
  if not awaited(id, parent) or recorded(parent, 'failed', id) then return false end
  local row = fields(parent, 'state')
  return row and row[1] == 'awaiting_children'
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
    local score = read('ZSCORE', set, id)
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
-- sound_books(id): whether the books of a parent can be read; a breach for each that cannot.
local function sound_books(id)
  local sound = true
  for _, book in ipairs({ 'dependencies', 'processed', 'failed', 'unsuccessful' }) do
    local is = redis.call('TYPE', row_of(id) .. ':' .. book).ok
    if is ~= 'none' and is ~= BOOKS[book] then
      breach(id, 'wrong type: its :' .. book .. ' is a ' .. is .. ', not a ' .. BOOKS[book])
      sound = false
    end
  end
  return sound
end
local i = 1
while i <= #ARGV do
  local id, groups, seen = ARGV[i], {}, {}
  local row = fields(id, 'state', 'group', 'parent', 'parent_queue', 'parent_policy')
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
    local is = redis.call('TYPE', row_of(id)).ok
    if #places > 0 then
      breach(id, 'ghost: in ' .. where .. ' without a row')
    elseif is ~= 'none' then
      breach(id, 'wrong type: its row is a ' .. is .. ', not a hash')
    end
  elseif #places > 1 then
    breach(id, 'in several places: ' .. where)
  elseif #places == 0 then
    local readable = state ~= 'awaiting_children' or sound_books(id)
    local waits = readable and tonumber(read('GET', row_of(id) .. ':dependencies') or nil) or 0
    if state ~= 'awaiting_children' then
      breach(id, 'stray: a row in no place, its state is ' .. state)
    elseif not readable then
      waits = 0
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
  -- With a queue in its row the signal goes by the outbox, and may lie there.
  if where == 'dead' and row and row[3] and not row[4] and row[5] ~= 'id' and untold(id, row[3]) then
    breach(row[3], 'held, and was never told that its child ' .. id .. ' is dead')
  end
  if row and off then breach(id, 'scores ' .. off .. ' in ' .. where .. ', not 0') end
end
return { out, held, kin }
