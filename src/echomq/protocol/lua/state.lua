#!lua flags=no-writes
-- state: where a job is, by its place (protocol §7).
-- KEYS[1] -> row
-- ARGV[1] -> id
-- returns pending, scheduled, active, dead, awaiting_children, unknown or absent
-- @include place
local row = fields(ARGV[1], 'state', 'group')
if not row then return 'absent' end
local place = place_of(ARGV[1], row[2])
if place then return place end
if redis.call('ZSCORE', base .. 'schedule', ARGV[1]) then return 'scheduled' end
if redis.call('ZSCORE', base .. 'dead', ARGV[1]) then return 'dead' end
if row[1] == 'awaiting_children' then return 'awaiting_children' end
return 'unknown'
