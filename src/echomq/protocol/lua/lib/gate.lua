-- gate(want): how many jobs the queue lets into hands now, and why fewer: paused, ceiling or rate (protocol §7).
-- spend(n): takes n from the rate budget; a window starts with its first job. window_end(): when the budget is whole
-- again, on the server's clock.
-- @include now
-- @include ceiling
local most, period
local function gate(want)
  local meta = redis.call('HMGET', base .. 'meta', 'paused', 'max', 'period_ms')
  if meta[1] then return 0, 'paused' end
  local why = ''
  local room = ceiling_room()
  if room and room < want then want, why = math.max(room, 0), 'ceiling' end
  most, period = tonumber(meta[2] or nil), tonumber(meta[3] or nil)
  if not most or most < 1 or not period or period < 1 or period > 2 ^ 46 or period % 1 ~= 0 then most = nil end
  if most then
    local left = most - (tonumber(redis.call('GET', base .. 'limiter') or nil) or 0)
    if left < 1 and redis.call('PTTL', base .. 'limiter') == -1 then
      -- Another client has left it without an end: it would shut the queue for ever.
      redis.call('DEL', base .. 'limiter')
      left = most
    end
    if left < want then want, why = math.max(left, 0), 'rate' end
  end
  return want, why
end
local function spend(n)
  if not most or n < 1 then return end
  local spent = mind('INCRBY', base .. 'limiter', n)
  if not spent then
    redis.call('SET', base .. 'limiter', n, 'PX', period)
  elseif spent == n then
    redis.call('PEXPIRE', base .. 'limiter', period)
  end
end
-- claimable(): how many jobs could be claimed now, counted to 64, for tokens: none where a claim would fail, and all 64
-- where what waits cannot be counted, since one of the keys holds another type.
local function claimable()
  local gated, room = pcall(gate, 64)
  if not gated then return 0 end
  local counted, waiting = pcall(waiting_up_to, room)
  return counted and waiting or room
end
-- A key is there to the end of the millisecond in which its time is up.
local function window_end() return now + math.max(redis.call('PTTL', base .. 'limiter') + 1, 0) end
