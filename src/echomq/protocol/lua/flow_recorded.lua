#!lua flags=no-writes
-- flow recorded: which children need no adding any more, for their parent has recorded them or is finished (protocol
-- §8).
-- KEYS[1] -> parent's row   KEYS[2] -> :processed   KEYS[3] -> :failed   KEYS[4] -> :unsuccessful
-- ARGV -> children
-- returns 1 or 0 a child, in order
local gone, out = redis.call('EXISTS', KEYS[1]) == 0, {}
for n, child in ipairs(ARGV) do
  out[n] = gone and 1 or 0
  for i = 2, 4 do
    if redis.call('HEXISTS', KEYS[i], child) == 1 then out[n] = 1 end
  end
end
return out
