#!lua
-- cron run: one occurrence beside the timetable, admitted as the recurrence's own are; its next run stays (protocol §9,
-- ours).
-- KEYS[1] -> cron   KEYS[2] -> its record
-- ARGV[1] -> name   ARGV[2] -> repeat | cron   ARGV[3] -> the stamp that was read   ARGV[4] -> fresh id
-- ARGV[5] -> payload
-- returns {admitted, ''}; {held, id} when that living job holds the deduplication key; {duplicate, ''} when the id is
--   taken; {changed, ''} when the name has changed since it was read, or has no record that can be; EMQKIND
-- @include now
-- @include kind
-- @include admit
-- @include entry
-- @include occurrence
local id, record = ARGV[4], KEYS[1] .. ':' .. ARGV[1]
local refused = not_a_job(id)
if refused then return refused end
if stamp_of(ARGV[2], ARGV[1]) ~= ARGV[3] then return { 'changed', '' } end
if known(id) then return { 'duplicate', '' } end
if ARGV[2] == 'repeat' then
  sound('pending')
  admit(id, ARGV[5])
  wake(1)
  return { 'admitted', '' }
end
if not is_record(record) then return { 'changed', '' } end
local holder = occur(id, ARGV[5], options_of(record))
if holder ~= 1 then return { 'held', holder } end
redis.call('HSET', record, 'last_id', id, 'last_run_ms', string.format('%.0f', now))
redis.call('HDEL', record, 'last_late_ms')
return { 'admitted', '' }
