-- row_of(id), and fields(id, ...): the named fields of a row, or nil for a ghost: an id whose row is missing
-- or is no hash (protocol §5). A field that is absent is false.
-- @include base
local function row_of(id) return base .. 'job:' .. id end
local function fields(id, ...)
  local row = row_of(id)
  local values = redis.pcall('HMGET', row, ...)
  if values.err then return nil end
  if values[1] or values[2] then return values end
  for i = 3, #values do
    if values[i] then return values end
  end
  if redis.call('EXISTS', row) == 0 then return nil end
  return values
end
