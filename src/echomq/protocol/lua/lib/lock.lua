-- locked(id, field): whether a worker says that it holds the job: its marker lives, or the row's `lock` field does, which
-- counts only where the server knows hash-field TTL, for elsewhere it would stay for ever (protocol §7).
-- unlock(id): both are gone, when the job leaves hand.
-- @include rows
local function locked(id, field)
  if redis.call('EXISTS', row_of(id) .. ':lock') == 1 then return true end
  return field and not redis.pcall('HPTTL', row_of(id), 'FIELDS', 1, 'lock').err
end
local function unlock(id)
  redis.call('DEL', row_of(id) .. ':lock')
  redis.call('HDEL', row_of(id), 'lock')
end
