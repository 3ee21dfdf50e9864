#!lua flags=allow-oom
-- cron cancel: a recurrence ends, whichever registry it is in; occurrences that were admitted stay (protocol §9, ours).
-- KEYS[1] -> cron   KEYS[2] -> its record
-- ARGV[1] -> name
-- returns 1; 0 when there was none
-- @include base
local found = 0
for _, kind in ipairs({ 'repeat', 'cron' }) do redis.call('ZCARD', base .. kind) end
for _, kind in ipairs({ 'repeat', 'cron' }) do
  found = found + redis.call('DEL', base .. kind .. ':' .. ARGV[1])
  found = found + redis.call('ZREM', base .. kind, ARGV[1])
end
return math.min(found, 1)
