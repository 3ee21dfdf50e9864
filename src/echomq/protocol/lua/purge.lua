#!lua flags=allow-oom
-- purge: deletes jobs that lie in the morgue; one that has another life by now is left alone, and a
-- held parent that still waits for one dies of it (protocol §7, §8, ours). One whose parent cannot be told stays and is
-- not counted.
-- KEYS[1] -> dead
-- ARGV -> id ...
-- returns how many were purged
-- @include purge
local purged = 0
for _, id in ipairs(ARGV) do
  if redis.call('ZSCORE', base .. 'dead', id) and purge(id) then purged = purged + 1 end
end
return purged
