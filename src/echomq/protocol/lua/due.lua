#!lua flags=allow-oom
-- due: the recurrences whose next run has come, oldest first, with their records (protocol §9). A name without a
-- record is swept.
-- KEYS[1] -> repeat
-- ARGV[1] -> now ms, the host's   ARGV[2] -> limit
-- returns name, score, every ms, template of each; every ms is 0 for a record that cannot be read: fire drops it
-- @include dues
return plain_dues(KEYS[1], ARGV[1], ARGV[2])
