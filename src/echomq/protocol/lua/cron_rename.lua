#!lua flags=allow-oom
-- cron rename: a recurrence of the cron registry goes on under another name, with its next run and all that has become
-- of it, in one step, so that no slot is fired under both names or under none (protocol §9, ours).
-- KEYS[1] -> cron   KEYS[2] -> the record of the new name
-- ARGV[1] -> the new name   ARGV[2] -> the old one   ARGV[3] -> its stamp in cron that was read
-- returns 1; 0 when the old name has changed since or is in repeat too, or when the new one is there: nothing written
-- stays true: the name is in one registry.
-- @include entry
local name, old = ARGV[1], ARGV[2]
local registry = base .. 'cron'
local record = registry .. ':' .. old
if stamp_of('cron', old) ~= ARGV[3] or not is_record(record) or stamp_of('repeat', old) ~= '' then return 0 end
if stamp_of('cron', name) ~= '' or stamp_of('repeat', name) ~= '' then return 0 end
local score = redis.call('ZSCORE', registry, old)
redis.call('RENAME', record, registry .. ':' .. name)
redis.call('ZREM', registry, old)
if score then redis.call('ZADD', registry, score, name) end
return 1
