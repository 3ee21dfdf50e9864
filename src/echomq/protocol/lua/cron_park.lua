#!lua flags=allow-oom
-- cron park: a recurrence whose record cannot be read leaves the timetable, so that it cannot stay due for ever; its
-- record stays (protocol §9, ours).
-- KEYS[1] -> cron   KEYS[2] -> its record
-- ARGV[1] -> name   ARGV[2] -> the stamp that was read
-- returns 1; 0 when it has changed since
-- @include entry
if stamp_of('cron', ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('ZADD', KEYS[1], 'XX', '+inf', ARGV[1])
return 1
