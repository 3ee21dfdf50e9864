-- ceiling_room(): how many more jobs of this queue may be in hand, or nil when it has no ceiling (protocol §7).
-- wake_freed(n, opened): tokens after n jobs left hand and `opened` jobs of lanes became claimable, no more than a
-- ceiling now lets through (protocol §12.2).
-- @include wake
-- @include lane
local function ceiling_room()
  local ceiling = tonumber(redis.call('HGET', base .. 'meta', 'concurrency') or nil)
  if not ceiling or ceiling <= 0 then return nil end
  return ceiling - redis.call('ZCARD', base .. 'active')
end
-- waiting_up_to(n): how many jobs could be claimed but for the ceiling, counted no further than n and 64 lanes deep.
local function waiting_up_to(n)
  local ring = redis.call('LLEN', base .. 'ring')
  local waiting = redis.call('ZCARD', base .. 'pending') + ring
  if ring == 0 or waiting >= n then return math.min(waiting, n) end
  for _, group in ipairs(redis.call('LRANGE', base .. 'ring', 0, 63)) do
    waiting = waiting + math.max(lane_served(group) - 1, 0)
    if waiting >= n then return n end
  end
  return waiting
end
local function tokens_freed(n, opened)
  local room = ceiling_room()
  if not room then return wake(opened) end
  if room < 1 or n < 1 then return end
  local waiting = waiting_up_to(room)
  wake(waiting - math.max(math.min(waiting - opened, room - n), 0))
end
-- The jobs have moved: where a key that only tokens need holds another type, nobody is woken and nothing else fails.
local function wake_freed(n, opened) pcall(tokens_freed, n, opened) end
