-- claimed(why): the reply of a claim (protocol §12.2): {now ms, why, next ms or -1, then id, payload, attempts,
-- failures, stalled, group or '' a job}. `next` is the earliest of schedule, recurrences and a rate window's end.
-- A claim that found nothing deletes `wake`, unless flat work waits after all: a lane claim does not look there, and
-- a burial can release a parent. The jobs are in hand by then, so a schedule of another type is as good as none.
-- @include hand
-- @include gate
-- @include mind
local function claimed(why)
  lease_hands()
  if taken == 0 and (why ~= 'empty' or redis.call('EXISTS', base .. 'pending') == 0) then
    redis.call('DEL', base .. 'wake')
  end
  local nearest = why == 'rate' and window_end() or -1
  for _, key in ipairs({ 'schedule', 'repeat', 'cron' }) do
    local first = mind('ZRANGE', base .. key, 0, 0, 'WITHSCORES')
    local head = first and first[2]
    local score = head and math.max(math.ceil(tonumber(head)), 0)
    if score and score < 9007199254740992 and (nearest < 0 or score < nearest) then nearest = score end
  end
  local reply = { now, why, nearest }
  for i = 1, #jobs do reply[i + 3] = jobs[i] end
  return reply
end
