-- ceiling_room(): how many more jobs of this queue may be in hand, or nil when it has no ceiling (protocol §7).
-- wake_below_ceiling(n): tokens for up to n jobs that a freed ceiling lets through.
-- @include wake
local function ceiling_room()
  local ceiling = tonumber(redis.call('HGET', base .. 'meta', 'concurrency') or nil)
  if not ceiling or ceiling <= 0 then return nil end
  return ceiling - redis.call('ZCARD', base .. 'active')
end
local function wake_below_ceiling(n)
  local room = ceiling_room()
  if not room or room < 1 then return end
  local waiting = redis.call('ZCARD', base .. 'pending') + redis.call('LLEN', base .. 'ring')
  wake(math.min(n, room, waiting))
end
