#!lua flags=allow-oom
-- flow withdraw: whether a death, which the parent has on record and is held again all the same, is of an earlier life of
-- the child; if so, its signal leaves the outbox (protocol §8, ours). A later death has its own signal.
-- KEYS[1] -> flow:outbox of the child's queue
-- ARGV[1] -> the entry   ARGV[2] -> child
-- returns 1 it is: the child lives, or nothing says so any more; 0 it stands and is to be delivered
-- @include rows
local row = fields(ARGV[2], 'state')
if row and row[1] ~= 'dead' then
  redis.call('LREM', KEYS[1], 1, ARGV[1])
  return 1
end
return redis.call('LPOS', KEYS[1], ARGV[1]) and 0 or 1
