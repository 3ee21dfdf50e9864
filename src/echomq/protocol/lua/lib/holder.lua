-- holder_of(key): the living job that holds a deduplication key, and its state, or nil (protocol §7). One that is dead, or
-- gone, holds nothing.
-- @include rows
local function holder_of(key)
  local id = redis.call('GET', base .. 'de:' .. key)
  local row = id and fields(id, 'state')
  if row and row[1] ~= 'dead' then return id, row[1] end
end
