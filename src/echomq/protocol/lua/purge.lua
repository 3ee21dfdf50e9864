#!lua flags=allow-oom
-- purge: deletes jobs that lie in the morgue; one that has another life by now is left alone, and a
-- held parent that still waits for one dies of it (protocol §7, §8, ours).
-- KEYS[1] -> dead
-- ARGV -> id ...
-- returns how many were purged
-- @include forget
local purged = 0
for _, id in ipairs(ARGV) do
  if redis.call('ZREM', KEYS[1], id) == 1 then
    forget(id, 'purged')
    purged = purged + 1
  end
end
return purged
