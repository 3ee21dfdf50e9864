#!lua flags=no-writes
-- audit kin: which of these jobs are children of parents in a queue, which may be this one (protocol §8, §12.1).
-- KEYS[1] -> any key of the children's queue
-- ARGV[1] -> the parents' queue   then ids
-- returns child, parent of each
-- @include stranger
local out = {}
for i = 2, #ARGV do
  local row = fields(ARGV[i], 'parent', 'parent_queue')
  if row and row[1] and (row[2] or OWN) == ARGV[1] then
    out[#out + 1] = ARGV[i]
    out[#out + 1] = row[1]
  end
end
return out
