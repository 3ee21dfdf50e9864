#!lua flags=allow-oom
-- purge: deletes jobs that lie in the morgue; one that has another life by now is left alone, and a
-- held parent that still waits for one dies of it (protocol §7, §8, ours). One whose parent cannot be told, for a key of
-- its books holds another type, stays and is not counted.
-- KEYS[1] -> dead
-- ARGV -> id ...
-- returns how many were purged
-- @include forget
local dead = base .. 'dead'
local purged = 0
for _, id in ipairs(ARGV) do
  local score = redis.call('ZSCORE', dead, id)
  local sound, told = pcall(sound_death, id)
  if score and sound then
    redis.call('ZREM', dead, id)
    forget(id, told and 'purged')
    purged = purged + 1
  end
end
return purged
