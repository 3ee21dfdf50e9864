-- row_of(id), and fields(id, ...): the named fields of a row, or nil for a ghost: an id whose row is missing
-- or is no hash (protocol §5). A field that is absent is false. A row that cannot be read, as one that has moved to
-- another node already, is no ghost: its error ends the call.
-- @include base
local function row_of(id) return base .. 'job:' .. id end
local function fields(id, ...)
  local row = row_of(id)
  local values = redis.pcall('HMGET', row, ...)
  if values.err then
    if string.find(values.err, 'WRONGTYPE', 1, true) == 1 then return nil end
    error(values.err)
  end
  if values[1] or values[2] then return values end
  for i = 3, #values do
    if values[i] then return values end
  end
  if redis.call('EXISTS', row) == 0 then return nil end
  return values
end
