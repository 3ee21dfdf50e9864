#!lua flags=allow-oom
-- progress: a job's progress, kept in its row and published (protocol §7, §10).
-- KEYS[1] -> row
-- ARGV[1] -> value   ARGV[2] -> id   ARGV[3] -> base
-- returns 1; -1 gone
-- @include event
if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
redis.call('HSET', KEYS[1], 'progress', ARGV[1])
publish({ event = 'progress', job = ARGV[2], progress = ARGV[1] })
return 1
