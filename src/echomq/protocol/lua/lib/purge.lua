-- purge(id): deletes a job that lies in the morgue, and a held parent that still waits for it dies of it (protocol §8);
-- false, with nothing written, for one whose parent cannot be told, since a key of its books holds another type.
-- @include forget
local function purge(id)
  local sound, told = pcall(sound_death, id)
  if not sound then return false end
  redis.call('ZREM', base .. 'dead', id)
  forget(id, told and 'purged')
  return true
end
