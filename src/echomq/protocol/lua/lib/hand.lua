-- Taking jobs in hand (protocol §5, §6): a ghost is dropped, a row without a payload and a cancelled job are buried;
-- neither counts as a claim. Collects the reply in `jobs` (6 entries a job) and the leases in `hands`.
-- @include now
-- @include place
-- @include bury
local jobs, hands = {}, {}
local taken = 0
local deadline
local function lease_hands()
  if #hands > 0 then redis.call('ZADD', base .. 'active', unpack(hands)) end
  hands = {}
end
-- in_hand(id, served): takes a job that is already out of its set; false when there is none to be had behind the id.
-- `served`: the caller minds the ring; a grouped job can lie in the flat set too, where another client has left it.
local function in_hand(id, served)
  local row = fields(id, 'payload', 'attempts', 'failures', 'stalled', 'group', 'cancel')
  if not row then return false end
  if not row[1] then
    bury(id, 'payload missing')
    return false
  end
  if row[6] then
    bury(id, row[6])
    return false
  end
  local attempts = string.format('%.0f', (tonumber(row[2] or nil) or 0) + 1)
  redis.call('HSET', row_of(id), 'state', 'active', 'attempts', attempts)
  if row[5] then
    hand_taken(row[5])
    if not served then ring_fix(row[5]) end
  end
  taken = taken + 1
  hands[#hands + 1] = deadline
  hands[#hands + 1] = id
  if #hands >= 2000 then lease_hands() end
  local n = #jobs
  jobs[n + 1], jobs[n + 2], jobs[n + 3] = id, row[1], attempts
  jobs[n + 4], jobs[n + 5], jobs[n + 6] = row[3] or '0', row[4] or '0', row[5] or ''
  return true
end
-- head_of(group): the head of a lane that is open, in hand; false when the lane has none (left).
local function head_of(group)
  while lane_open(group) do
    if in_hand(redis.call('ZPOPMIN', lane_of(group))[1], true) then return true end
  end
  return false
end
-- from_lanes(share): one turn of the ring; `share(group)` jobs at most from the lane it stops at.
local function from_lanes(share)
  for _ = 1, redis.call('LLEN', base .. 'ring') do
    local group = redis.call('LMOVE', base .. 'ring', base .. 'ring', 'LEFT', 'RIGHT')
    local left, found = share(group), false
    while left > 0 and head_of(group) do
      left, found = left - 1, true
    end
    if not lane_open(group) then redis.call('LREM', base .. 'ring', -1, group) end
    if found then return true end
  end
  return false
end
