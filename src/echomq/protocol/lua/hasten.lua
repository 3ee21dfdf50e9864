#!lua flags=allow-oom
-- hasten: whatever waits for a time is due earlier by a span, all of it at one instant: for tests (§9, ours).
-- KEYS[1] -> schedule   KEYS[2] -> repeat   KEYS[3] -> cron
-- ARGV[1] -> span ms
-- returns how many moved in each
-- stays true: what waits keeps its order; what has no time (paused, over) gets none. No record and no row is touched.
-- @include base
-- @include wake
local span, moved = tonumber(ARGV[1]), {}
local waiting = { base .. 'schedule', base .. 'repeat', base .. 'cron' }
for _, key in ipairs(waiting) do redis.call('ZCARD', key) end
for place, key in ipairs(waiting) do
  local members = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  local batch, count = {}, 0
  for i = 1, #members, 2 do
    local score = tonumber(members[i + 1])
    if score < 2 ^ 53 then
      batch[#batch + 1], batch[#batch + 2] = string.format('%.17g', score - span), members[i]
      count = count + 1
    end
    if #batch >= 1000 or (i == #members - 1 and #batch > 0) then
      redis.call('ZADD', key, 'XX', unpack(batch))
      batch = {}
    end
  end
  moved[place] = count
end
if moved[1] + moved[2] + moved[3] > 0 then wake(1) end
return moved
