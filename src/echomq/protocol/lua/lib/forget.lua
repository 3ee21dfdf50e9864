-- forget(id, reason): deletes a job that is not going to run: its row, every subkey and the deduplication key that
-- names it; with a reason its parent learns of a death (protocol §7, §8). The caller has taken it out of its place, and
-- gives a reason only when sound_death has said, before the first write, that there is a parent to be told.
-- @include flow
-- @include free_key
local function forget(id, reason)
  local row = row_of(id)
  if reason then signal_death(id, reason) end
  local own = fields(id, 'dedup')
  if own then free_key(id, own[1]) end
  redis.call(
    'DEL', row, row .. ':logs', row .. ':lock', row .. ':dependencies', row .. ':processed', row .. ':failed',
    row .. ':unsuccessful'
  )
end
