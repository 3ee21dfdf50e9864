#!lua flags=allow-oom
-- advance: the next run of a recurrence, as the original's pump sets it (protocol §9); ours uses fire.
-- KEYS[1] -> repeat   KEYS[2] -> record
-- ARGV[1] -> name     ARGV[2] -> next run ms
-- returns 1; 0, and the stray member swept, when the record is gone; ERR next
-- @include base
-- @include natural
if not natural(ARGV[2]) then return redis.error_reply('ERR advance next must be a non-negative integer') end
if redis.call('EXISTS', KEYS[1] .. ':' .. ARGV[1]) == 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
  return 0
end
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
return 1
