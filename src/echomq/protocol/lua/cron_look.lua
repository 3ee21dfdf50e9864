#!lua flags=no-writes
-- cron look: where a name stands in both registries (protocol §9, ours).
-- KEYS[1] -> cron   KEYS[2] -> its record
-- ARGV[1] -> name
-- returns now ms, then for repeat and for cron {score or '', stamp, field, value ...}, {} where there is none
-- @include now
-- @include entry
return { now, entry('repeat', ARGV[1]), entry('cron', ARGV[1]) }
