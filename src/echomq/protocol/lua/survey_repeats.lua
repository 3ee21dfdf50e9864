#!lua flags=no-writes
-- survey repeats: a page of recurrences with their records, the next one first (protocol §9, ours).
-- KEYS[1] -> repeat or cron
-- ARGV[1] -> how many bytes of a long value are given
-- ARGV[2] -> how the page is chosen: `rank` by ARGV[3] the first and ARGV[4] how many, `name` by ARGV[3] the name
-- returns now ms, how many there are, then a list a recurrence: name, score, bytes of the template, template, then
--   field, value ... of what else its record holds
-- @include now
-- @include base
local cap, members = tonumber(ARGV[1]), {}
if ARGV[2] == 'name' then
  local score = redis.call('ZSCORE', KEYS[1], ARGV[3])
  if score then members = { ARGV[3], score } end
else
  members = redis.call('ZRANGE', KEYS[1], ARGV[3], ARGV[3] + ARGV[4] - 1, 'WITHSCORES')
end
local out = { now, redis.call('ZCARD', KEYS[1]) }
for i = 1, #members, 2 do
  local record = redis.pcall('HGETALL', KEYS[1] .. ':' .. members[i])
  local each = { members[i], members[i + 1], 0, '' }
  for n = 1, record.err and 0 or #record, 2 do
    if record[n] == 'template' then
      each[3], each[4] = #record[n + 1], string.sub(record[n + 1], 1, cap)
    else
      each[#each + 1], each[#each + 2] = record[n], string.sub(record[n + 1], 1, cap)
    end
  end
  out[#out + 1] = each
end
return out
