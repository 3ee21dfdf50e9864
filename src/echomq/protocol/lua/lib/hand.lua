-- Taking jobs in hand (protocol §5, §6): a ghost is dropped and so is what lies elsewhere as well, a row without a payload
-- and a cancelled job are buried; neither counts as a claim. One that cannot be buried, for its parent cannot be told, is
-- `stuck`: it goes back (put_back) and hides none behind it, up to 1,000 of them. Collects the reply in `jobs` (6 entries
-- a job) and the leases in `hands`.
-- @include natural
-- @include lane
-- @include strayed
-- @include bury
local jobs, hands = {}, {}
local taken, touched, barred = 0, false, nil
local stuck, looked_at, looked_in = {}, nil, nil
local deadline
local function lease_hands()
  if #hands > 0 then redis.call('ZADD', base .. 'active', unpack(hands)) end
  hands = {}
end
-- mistaken(id, row): why a row can never be run, or nil: it has no payload, a token that is no count, a group that is no
-- branded id, or an id that no client can settle, since every host checks the whole of it (protocol §1).
local function mistaken(id, row)
  if not row[1] then return 'payload missing' end
  local attempts = tonumber(row[2] or '0')
  if not attempts or attempts < 0 or attempts >= LAST or attempts % 1 ~= 0 then return 'attempts unreadable' end
  if row[5] and not string.match(row[5], '^%w+$') then return 'group malformed' end
  if #id ~= 14 or not string.match(id, '^JOB%w+$') then return 'id malformed' end
  if string.byte(id, 4) >= 65 then
    for i = 4, 14 do
      local over = string.byte(id, i) - string.byte('AzL8n0Y58m7', i - 3)
      if over > 0 then return 'id malformed' end
      if over < 0 then return nil end
    end
  end
end
-- count_of(text): a counter of the row, 0 when it is none.
local function count_of(text)
  if not text or not string.match(text, '^%d+$') or #text > 15 then return 0 end
  return text
end
-- in_hand(id, served): takes a job that is already out of its set; false when there is none to be had behind the id.
-- `served`: the lane that it was in, of which the caller minds the ring; a grouped job can lie in the flat set too, where
-- another client has left it.
local function in_hand(id, served)
  touched, looked_at, looked_in = true, id, served
  local row = fields(id, 'payload', 'attempts', 'failures', 'stalled', 'group', 'cancel', 'state')
  looked_at = nil
  if not row then return false end
  if row[7] == 'active' then lease_hands() end
  if strayed(id, row[7], 'pending') then return false end
  local reason = mistaken(id, row) or row[6]
  if reason then
    local sound, told = pcall(sound_death, id)
    if sound then
      bury(id, reason, told)
    else
      stuck[#stuck + 1] = { id, served }
    end
    return false
  end
  local attempts = (tonumber(row[2] or nil) or 0) + 1
  redis.call('HSET', row_of(id), 'state', 'active', 'attempts', attempts)
  local group = row[5]
  taken = taken + 1
  local n = #hands
  hands[n + 1], hands[n + 2] = deadline, id
  if n >= 1998 then lease_hands() end
  n = #jobs
  jobs[n + 1], jobs[n + 2], jobs[n + 3] = id, row[1], attempts
  jobs[n + 4], jobs[n + 5], jobs[n + 6] = count_of(row[3]), count_of(row[4]), group or ''
  if group then
    hand_taken(group)
    if not served then pcall(ring_fix, group) end
  end
  return true
end
-- head_of(group): the head of a lane that is open, in hand; false when the lane has none (left).
local function head_of(group)
  while #stuck < 1000 and lane_open(group) do
    if in_hand(redis.call('ZPOPMIN', lane_of(group))[1], group) then return true end
  end
  return false
end
-- from_lanes(share): one turn of the ring; `share(group)` jobs at most from the lane it stops at. A lane that is no lane,
-- or whose books are none, is passed over: `barred` then says why. A turn that finds nothing leaves the ring as it was, but
-- for what is taken off it.
local function from_lanes(share)
  for _ = 1, redis.call('LLEN', base .. 'ring') do
    local group = redis.call('LMOVE', base .. 'ring', base .. 'ring', 'LEFT', 'RIGHT')
    local readable, open = pcall(lane_open, group)
    if readable then
      local left, found = share(group), false
      while left > 0 and head_of(group) do
        left, found = left - 1, true
      end
      if not lane_open(group) then
        redis.call('LREM', base .. 'ring', -1, group)
        touched = true
      end
      if found then return true end
    else
      barred = open
    end
  end
  return false
end
-- nothing_but_barred(): what bars the lanes that a claim has met, when it has taken nothing and nothing is written.
local function nothing_but_barred() return taken == 0 and not touched and barred end
-- put_back(): to be called when all is taken, also when that has failed midway: what was out of its set and is not in hand.
local function put_back()
  if looked_at then stuck[#stuck + 1] = { looked_at, looked_in } end
  for _, job in ipairs(stuck) do
    redis.call('ZADD', job[2] and lane_of(job[2]) or base .. 'pending', 0, job[1])
    if job[2] then pcall(ring_fix, job[2]) end
  end
end
