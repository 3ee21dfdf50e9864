#!lua
-- upsert: a recurrence by its name, whether it lives or not (protocol §9, ours). The next run stays unless the
-- period changed or the name had lost its place.
-- KEYS[1] -> repeat   KEYS[2] -> record
-- ARGV[1] -> name     ARGV[2] -> every ms   ARGV[3] -> template   ARGV[4] -> in | at   ARGV[5] -> first run, ms: `in`
--   counts from the server's now
-- returns registered, updated or unchanged; ERR every, ERR mode, ERR due
-- @include recurrence
-- @include due
-- @include wake
local first, refused = due_at('upsert', ARGV[4], ARGV[5])
refused = unregistrable('upsert', ARGV[2]) or refused
if refused then return refused end
local record = KEYS[1] .. ':' .. ARGV[1]
local old = redis.call('HMGET', record, 'every_ms', 'template')
local placed = redis.call('ZSCORE', KEYS[1], ARGV[1])
if placed and old[1] == ARGV[2] and old[2] == ARGV[3] then return 'unchanged' end
redis.call('HSET', record, 'every_ms', ARGV[2], 'template', ARGV[3])
if not placed or old[1] ~= ARGV[2] then
  redis.call('ZADD', KEYS[1], first, ARGV[1])
  wake_if_first(KEYS[1], ARGV[1])
end
return (old[1] or old[2]) and 'updated' or 'registered'
