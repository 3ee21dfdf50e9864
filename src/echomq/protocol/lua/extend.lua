#!lua flags=allow-oom
-- extend: a new deadline for a job in hand (protocol §5).
-- KEYS[1] -> active   KEYS[2] -> row
-- ARGV[1] -> id       ARGV[2] -> token   ARGV[3] -> lease ms
-- returns 1; -1 gone; EMQSTALE extend token mismatch; EMQSTATE extend not active; ERR lease
-- @include lease
-- @include rows
local deadline, refused = lease_until('extend', ARGV[3])
if not deadline then return refused end
local row = fields(ARGV[1], 'attempts')
if not row then
  redis.call('ZREM', KEYS[1], ARGV[1])
  return -1
end
if row[1] ~= ARGV[2] then return redis.error_reply('EMQSTALE extend token mismatch') end
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return redis.error_reply('EMQSTATE extend not active') end
redis.call('ZADD', KEYS[1], 'XX', deadline, ARGV[1])
return 1
