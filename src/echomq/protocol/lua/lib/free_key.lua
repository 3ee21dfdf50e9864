-- free_key(id, key): a deduplication key, where there is one and it still names the job, is free again (protocol §7).
-- @include base
-- @include mind
local function free_key(id, key)
  if key and mind('GET', base .. 'de:' .. key) == id then redis.call('DEL', base .. 'de:' .. key) end
end
