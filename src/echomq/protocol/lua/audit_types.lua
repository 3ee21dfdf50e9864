#!lua flags=no-writes
-- audit types: which keys of the queue hold another type than theirs (protocol §2, §12.1).
-- KEYS[1] -> any key of the queue
-- ARGV -> what follows base, the type that belongs there; and so on
-- returns what follows base, the type that is there, the one that belongs there, of each that is wrong
-- @include base
local out = {}
for i = 1, #ARGV, 2 do
  local is = redis.call('TYPE', base .. ARGV[i]).ok
  if is ~= 'none' and is ~= ARGV[i + 1] then
    out[#out + 1] = ARGV[i]
    out[#out + 1] = is
    out[#out + 1] = ARGV[i + 1]
  end
end
return out
