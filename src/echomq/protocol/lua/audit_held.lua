#!lua flags=no-writes
-- audit held: how many children a parent waits for, and for how many of those that were found (protocol §8, §12.1).
-- KEYS[1] -> parent's row
-- ARGV -> children
-- returns {how many it waits for, 0 when it is not held any more; how many of the children it has not counted}
-- @include flow
local open = 0
for _, child in ipairs(ARGV) do
  if not counted(KEYS[1], child) then open = open + 1 end
end
local state = redis.pcall('HGET', KEYS[1], 'state')
if state ~= 'awaiting_children' then return { 0, open } end
return { math.max(tonumber(redis.call('GET', KEYS[1] .. ':dependencies') or nil) or 0, 0), open }
