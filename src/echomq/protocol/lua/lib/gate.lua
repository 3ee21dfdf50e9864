-- gate(want): how many jobs the queue lets into hands now, and why fewer: paused, ceiling or rate (protocol §7); for
-- rate also the instant its window ends. spend(n): takes n from the rate budget; a window starts with its first job.
-- @include now
-- @include ceiling
local meta_max, meta_period
local function gate(want)
  local meta = redis.call('HMGET', base .. 'meta', 'paused', 'max', 'period_ms')
  if meta[1] then return 0, 'paused' end
  local why, opens = '', nil
  local room = ceiling_room()
  if room and room < want then want, why = math.max(room, 0), 'ceiling' end
  meta_max, meta_period = tonumber(meta[2] or nil), tonumber(meta[3] or nil)
  if meta_max and meta_max > 0 and meta_period then
    local left = meta_max - (tonumber(redis.call('GET', base .. 'limiter') or nil) or 0)
    if left < want then
      want, why = math.max(left, 0), 'rate'
      opens = now + math.max(redis.call('PTTL', base .. 'limiter'), 0)
    end
  end
  return want, why, opens
end
local function spend(n)
  if n < 1 or not meta_max or meta_max <= 0 or not meta_period then return end
  if redis.call('INCRBY', base .. 'limiter', n) == n then redis.call('PEXPIRE', base .. 'limiter', meta_period) end
end
