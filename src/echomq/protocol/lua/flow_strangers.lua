#!lua flags=no-writes
-- flow strangers: which nodes of a flow that is about to be added find another job under their id (protocol §8, ours).
-- KEYS[1] -> pending
-- ARGV -> four a node: id, parent or '', the parent's queue when it lies elsewhere, number of children
-- returns a node, in order: why its row is not of this flow, or ''
-- @include stranger
local out = {}
for i = 1, #ARGV, 4 do
  out[#out + 1] = stranger(ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])) or ''
end
return out
