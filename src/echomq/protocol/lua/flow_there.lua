#!lua flags=no-writes
-- flow there: which children of parents elsewhere need no adding: they live as children of theirs, or their signal still
-- lies in the outbox (protocol §8).
-- KEYS[1] -> flow:outbox
-- ARGV -> three a child: id, parent, the parent's queue
-- returns 1 or 0 a child, in order
-- @include stranger
local out, missing, lost = {}, {}, 0
for i = 1, #ARGV, 3 do
  local id, n = ARGV[i], #out + 1
  local row = fields(id, 'parent', 'parent_queue', 'state')
  out[n] = row and child_of(row, ARGV[i + 1], ARGV[i + 2]) and row[3] ~= 'dead' and 1 or 0
  if out[n] == 0 then
    missing[table.concat({ ARGV[i + 2], ARGV[i + 1], id }, '\0')] = n
    lost = lost + 1
  end
end
if lost == 0 then return out end
for first = 0, redis.call('LLEN', KEYS[1]) - 1, 1000 do
  for _, entry in ipairs(redis.call('LRANGE', KEYS[1], first, first + 999)) do
    if string.sub(entry, 1, 6) == '\0fail\0' then entry = string.sub(entry, 7) end
    local n = missing[string.match(entry, '^([^%z]*%z[^%z]*%z[^%z]*)%z')]
    if n then out[n] = 1 end
  end
end
return out
