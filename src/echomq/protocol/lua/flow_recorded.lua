#!lua flags=no-writes
-- flow recorded: which children need no adding any more, for their parent has recorded them or is finished (protocol
-- §8).
-- KEYS[1] -> parent's row   KEYS[2] -> :processed   KEYS[3] -> :failed   KEYS[4] -> :unsuccessful
-- KEYS[5] -> :dependencies  KEYS[6] -> :result
-- ARGV -> children
-- returns a child, in order: 1 needs no adding; 0 the parent waits for it; 2 there is no such parent, nor was there
local row, out = redis.call('EXISTS', KEYS[1]), {}
local gone = row == 0 and (redis.call('EXISTS', KEYS[1] .. ':dependencies', KEYS[1] .. ':result') > 0 and 1 or 2)
for n, child in ipairs(ARGV) do
  out[n] = gone or 0
  for _, kind in ipairs({ ':processed', ':failed', ':unsuccessful' }) do
    if redis.call('HEXISTS', KEYS[1] .. kind, child) == 1 then out[n] = 1 end
  end
end
return out
