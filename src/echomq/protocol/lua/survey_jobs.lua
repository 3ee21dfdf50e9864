#!lua flags=no-writes
-- survey jobs: a page of jobs with the fields that an operator reads, at one instant (protocol §7, ours).
-- KEYS[1] -> any key of the queue   KEYS[2] -> the place that is paged through; none for `ids`
-- ARGV[1] -> how many bytes of a long value are given
-- ARGV[2] -> how the page is chosen: `rank` and `reverse` by ARGV[3] the first and ARGV[4] how many, `after` by ARGV[3]
--   an id or '' and ARGV[4] how many, `ids` by ARGV[3] ... the ids themselves
-- returns now ms, how many lie in the place, then a list a job: id, state, score on active or schedule or '', bytes of
--   the payload, payload, and attempts, failures, stalled, group, last_error, died_ms, cancel, parent, parent_queue,
--   dedup (nil when absent)
-- @include now
-- @include place
local cap, mode, size = tonumber(ARGV[1]), ARGV[2], 0
if KEYS[2] and string.sub(KEYS[2], 1, #base) ~= base then return redis.error_reply('ERR survey jobs place is of another queue') end
local ids = {}
if mode == 'ids' then
  for i = 3, #ARGV do ids[#ids + 1] = ARGV[i] end
else
  size = redis.call('ZCARD', KEYS[2])
  local first, count = ARGV[3], tonumber(ARGV[4])
  if mode == 'after' then
    local from = first == '' and '-' or '(' .. first
    ids = redis.call('ZRANGE', KEYS[2], from, '+', 'BYLEX', 'LIMIT', 0, count)
  elseif mode == 'reverse' then
    ids = redis.call('ZRANGE', KEYS[2], first, first + count - 1, 'REV')
  else
    ids = redis.call('ZRANGE', KEYS[2], first, first + count - 1)
  end
end
local function state_of(id, group, said)
  local at = redis.call('ZSCORE', base .. 'active', id)
  if at then return 'active', at end
  at = redis.call('ZSCORE', base .. 'schedule', id)
  if at then return 'scheduled', at end
  if place_of(id, group) then return 'pending', '' end
  if redis.call('ZSCORE', base .. 'dead', id) then return 'dead', '' end
  return said == 'awaiting_children' and said or 'unknown', ''
end
local out = { now, size }
for i = 1, #ids do
  local id = ids[i]
  local row = fields(
    id, 'state', 'group', 'payload', 'attempts', 'failures', 'stalled', 'group', 'last_error', 'died_ms', 'cancel',
    'parent', 'parent_queue', 'dedup'
  )
  local job = { id, 'absent', '', 0, '' }
  if row then
    local payload = row[3] or ''
    local state, at = state_of(id, row[2], row[1])
    job = { id, state, at, #payload, string.sub(payload, 1, cap) }
    for n = 4, 13 do job[n + 2] = row[n] and string.sub(row[n], 1, cap) end
  end
  out[i + 2] = job
end
return out
