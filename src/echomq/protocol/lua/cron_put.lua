#!lua
-- cron put: a recurrence as given, in its registry and in no other; acts only on what was read (protocol §9, ours).
-- KEYS[1] -> cron     KEYS[2] -> its record
-- ARGV[1] -> name     ARGV[2] -> the stamp in repeat that was read, or ''   ARGV[3] -> that in cron, or ''
-- ARGV[4] -> repeat | cron: where it goes   ARGV[5] -> next run ms, or inf   ARGV[6...] -> field, value ... of its record
-- returns 1; 0 when the name has changed since it was read, nothing written
-- stays true: the name is in one registry; in `cron` what has become of it (last run, runs) and the fields of other
--   clients are kept, in `repeat` there are `every_ms` and `template` alone.
-- @include entry
-- @include wake
local name, kind = ARGV[1], ARGV[4]
if stamp_of('repeat', name) ~= ARGV[2] or stamp_of('cron', name) ~= ARGV[3] then return 0 end
local other = kind == 'cron' and 'repeat' or 'cron'
local record = base .. kind .. ':' .. name
redis.call('ZCARD', base .. 'repeat')
redis.call('ZCARD', base .. 'cron')
redis.call('DEL', base .. other .. ':' .. name)
redis.call('ZREM', base .. other, name)
if kind == 'repeat' or redis.call('TYPE', record).ok ~= 'hash' then redis.call('DEL', record) end
redis.call(
  'HDEL', record, 'every_ms', 'line', 'tz', 'anchor_ms', 'start_ms', 'end_ms', 'jitter_ms', 'catch_up', 'overlap',
  'max_runs', 'expires_in_ms', 'group', 'lane', 'dedup', 'dedup_ms', 'dedup_way', 'owner', 'template', 'slot_ms', 'paused'
)
redis.call('HSET', record, unpack(ARGV, 6))
redis.call('ZADD', base .. kind, ARGV[5], name)
if ARGV[5] ~= 'inf' then wake_if_first(base .. kind, name) end
return 1
