#!lua flags=no-writes
-- audit outbox: the signals to parents in one queue that are still to be delivered (protocol §8, §12.1).
-- KEYS[1] -> flow:outbox
-- ARGV[1] -> the parents' queue
-- returns child, parent of each
local out = {}
if redis.call('TYPE', KEYS[1]).ok ~= 'list' then return out end
for first = 0, redis.call('LLEN', KEYS[1]) - 1, 1000 do
  for _, entry in ipairs(redis.call('LRANGE', KEYS[1], first, first + 999)) do
    if string.sub(entry, 1, 6) == '\0fail\0' then entry = string.sub(entry, 7) end
    local queue, parent, child = string.match(entry, '^([^%z]*)%z([^%z]*)%z([^%z]*)%z')
    if queue == ARGV[1] then
      out[#out + 1] = child
      out[#out + 1] = parent
    end
  end
end
return out
