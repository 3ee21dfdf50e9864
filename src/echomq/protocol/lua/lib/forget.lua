-- forget(id, reason): deletes a job that is not going to run: its row, every subkey and the deduplication key that
-- names it; with a reason its parent learns of a death (protocol §7, §8). The caller has taken it out of its place, and
-- gives a reason only when sound_death has said, before the first write, that there is a parent to be told.
-- @include flow
local function forget(id, reason)
  local row = row_of(id)
  if reason then signal_death(id, reason) end
  local own = fields(id, 'dedup')
  local key = own and own[1]
  if key and mind('GET', base .. 'de:' .. key) == id then redis.call('DEL', base .. 'de:' .. key) end
  redis.call(
    'DEL', row, row .. ':logs', row .. ':lock', row .. ':dependencies', row .. ':processed', row .. ':failed',
    row .. ':unsuccessful'
  )
end
