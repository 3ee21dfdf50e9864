#!lua flags=no-writes
-- audit ids: which of these ids breaks an invariant, each looked at in one instant (protocol §12.1).
-- KEYS[1] -> any key of the queue
-- ARGV -> ids
-- returns id, breach of each
-- @include rows
-- @include lane
local NAMES = { pending = 'pending', active = 'active', schedule = 'scheduled', dead = 'dead', lane = 'pending' }
local out = {}
local function breach(id, text)
  out[#out + 1] = id
  out[#out + 1] = text
end
for _, id in ipairs(ARGV) do
  local places = {}
  local row = fields(id, 'state', 'group', 'attempts')
  for _, set in ipairs({ 'pending', 'active', 'schedule', 'dead' }) do
    if redis.call('ZSCORE', base .. set, id) then places[#places + 1] = set end
  end
  if row and row[2] and redis.call('ZSCORE', lane_of(row[2]), id) then places[#places + 1] = 'lane' end
  if not row then
    if #places > 0 then breach(id, 'ghost: in ' .. table.concat(places, ', ') .. ' without a row') end
  elseif #places > 1 then
    breach(id, 'in several places: ' .. table.concat(places, ', '))
  elseif #places == 0 then
    if row[1] ~= 'awaiting_children' then breach(id, 'stray: a row in no place, its state is ' .. (row[1] or 'missing')) end
  elseif row[1] ~= NAMES[places[1]] then
    breach(id, 'state ' .. (row[1] or 'missing') .. ' but in ' .. places[1])
  elseif places[1] == 'pending' and row[2] then
    breach(id, 'carries group ' .. row[2] .. ' but lies in flat pending')
  end
end
return out
