#!lua flags=allow-oom
-- cron pause: no occurrence until it is put back; one that is in `repeat` waits in `cron`, because only there it can say
-- so (protocol §9, ours). Its next slot is kept.
-- KEYS[1] -> cron   KEYS[2] -> its record
-- ARGV[1] -> name
-- returns 1 paused; 2 it was paused already; 0 there is none, or none whose record can be read
-- stays true: the name is in one registry.
-- @include entry
-- @include recurrence
redis.call('ZCARD', KEYS[1])
local record = KEYS[1] .. ':' .. ARGV[1]
if redis.call('EXISTS', record) == 1 then
  if not is_record(record) then return 0 end
  local added = redis.call('HSET', record, 'paused', '1')
  redis.call('ZADD', KEYS[1], '+inf', ARGV[1])
  return added == 1 and 1 or 2
end
local plain = base .. 'repeat:' .. ARGV[1]
local period, template = readable(plain)
if not period then return 0 end
local score = tonumber(redis.call('ZSCORE', base .. 'repeat', ARGV[1]) or nil)
redis.call('HSET', record, 'every_ms', string.format('%.0f', period), 'template', template, 'paused', '1')
if score and score >= 0 and score <= LAST then
  redis.call('HSET', record, 'slot_ms', string.format('%.0f', math.floor(score)))
end
redis.call('ZADD', KEYS[1], '+inf', ARGV[1])
redis.call('DEL', plain)
redis.call('ZREM', base .. 'repeat', ARGV[1])
return 1
