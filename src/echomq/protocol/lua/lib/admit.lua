-- known(id): whether an admission of id is a duplicate: it has a row, or a finished job's result still lives.
-- admit(id, payload): a flat pending row (protocol §3, §5); the caller wakes.
-- @include rows
local function known(id)
  return redis.call('EXISTS', row_of(id), row_of(id) .. ':result') > 0
end
local function admit(id, payload)
  redis.call('ZADD', base .. 'pending', 0, id)
  redis.call('HSET', row_of(id), 'state', 'pending', 'attempts', '0', 'payload', payload)
end
