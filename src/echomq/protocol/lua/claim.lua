#!lua flags=allow-oom
-- claim: up to n jobs in hand under one deadline, flat work and lanes by turn (protocol §5, §6, §12.2, §12.3).
-- With L lanes on the ring the flat set is one more seat: nobody waits for more than L other claims. `turn`
-- counts the lane claims since the flat set was last served.
-- KEYS[1] -> pending   KEYS[2] -> active
-- ARGV[1] -> lease ms  ARGV[2] -> n
-- returns {now ms, why, next ms or -1, then id, payload, attempts, failures, stalled, group or '' a job};
--   why is '' when n were found, else empty, paused or ceiling. A claim that finds nothing deletes `wake`.
-- stays true: a ghost is dropped, a row without a payload is buried, neither counts as a claim.
-- @include now
-- @include place
-- @include bury
-- @include ceiling
local want, why = tonumber(ARGV[2]), ''
local deadline = now + tonumber(ARGV[1])
local jobs, hands = {}, {}
local taken = 0

-- in_hand(id, out): takes a job that is already out of its set; false when there is none behind the id.
local function in_hand(id)
  local row = fields(id, 'payload', 'attempts', 'failures', 'stalled', 'group')
  if not row then return false end
  if not row[1] then
    bury(id, 'payload missing')
    return false
  end
  local attempts = string.format('%.0f', (tonumber(row[2] or nil) or 0) + 1)
  redis.call('HSET', row_of(id), 'state', 'active', 'attempts', attempts)
  if row[5] then hand_taken(row[5]) end
  taken = taken + 1
  hands[#hands + 1] = deadline
  hands[#hands + 1] = id
  if #hands >= 2000 then
    redis.call('ZADD', KEYS[2], unpack(hands))
    hands = {}
  end
  local n = #jobs
  jobs[n + 1], jobs[n + 2], jobs[n + 3] = id, row[1], attempts
  jobs[n + 4], jobs[n + 5], jobs[n + 6] = row[3] or '0', row[4] or '0', row[5] or ''
  return true
end

local function from_flat(limit)
  while limit > 0 do
    local ids = redis.call('ZRANGE', KEYS[1], 0, math.min(limit, 1000) - 1)
    if #ids == 0 then return end
    redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #ids - 1)
    for i = 1, #ids do
      if in_hand(ids[i]) then limit = limit - 1 end
    end
  end
end

local function from_lanes()
  for _ = 1, redis.call('LLEN', base .. 'ring') do
    local group = redis.call('LMOVE', base .. 'ring', base .. 'ring', 'LEFT', 'RIGHT')
    local found = false
    while not found and lane_open(group) do
      found = in_hand(redis.call('ZPOPMIN', lane_of(group))[1])
    end
    if not lane_open(group) then redis.call('LREM', base .. 'ring', -1, group) end
    if found then return true end
  end
  return false
end

if redis.call('HEXISTS', base .. 'meta', 'paused') == 1 then
  want, why = 0, 'paused'
else
  local room = ceiling_room()
  if room and room < want then want, why = math.max(room, 0), 'ceiling' end
end
if want > 0 then
  local lanes = redis.call('LLEN', base .. 'ring')
  if lanes == 0 then
    from_flat(want)
  else
    local turn = tonumber(redis.call('GET', base .. 'turn') or nil) or 0
    while taken < want do
      local before = taken
      if turn < redis.call('LLEN', base .. 'ring') and from_lanes() then
        turn = turn + 1
      else
        from_flat(1)
        if taken > before then turn = 0 elseif not from_lanes() then break end
      end
    end
    redis.call('SET', base .. 'turn', turn)
  end
  if #hands > 0 then redis.call('ZADD', KEYS[2], unpack(hands)) end
  if taken < want then why = 'empty' end
end
if taken == 0 then redis.call('DEL', base .. 'wake') end

local nearest = -1
for _, key in ipairs({ 'schedule', 'repeat', 'cron' }) do
  local head = redis.call('ZRANGE', base .. key, 0, 0, 'WITHSCORES')[2]
  local score = head and math.ceil(tonumber(head))
  if score and score < 9007199254740992 and (nearest < 0 or score < nearest) then nearest = score end
end
local reply = { now, why, nearest }
for i = 1, #jobs do reply[i + 3] = jobs[i] end
return reply
