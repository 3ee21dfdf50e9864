#!lua flags=no-writes
-- flow recorded: whether a child needs no adding any more: its parent has recorded it, or is finished (protocol §8).
-- KEYS[1] -> parent's row   KEYS[2] -> :processed   KEYS[3] -> :failed   KEYS[4] -> :unsuccessful
-- ARGV[1] -> child
-- returns 1 or 0
for i = 2, 4 do
  if redis.call('HEXISTS', KEYS[i], ARGV[1]) == 1 then return 1 end
end
return 1 - redis.call('EXISTS', KEYS[1])
