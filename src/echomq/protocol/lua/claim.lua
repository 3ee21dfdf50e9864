#!lua flags=allow-oom
-- claim: up to n jobs in hand under one deadline, flat work and lanes by turn (protocol §5, §6, §12.2, §12.3).
-- With L lanes on the ring the flat set is one more seat: nobody waits for more than L other claims. `turn`
-- counts the lane claims that still go before the flat set's next. Twin: EMQ.CLAIM, for flat work.
-- KEYS[1] -> pending   KEYS[2] -> active
-- ARGV[1] -> lease ms  ARGV[2] -> n
-- returns the claim's reply of lib/claimed; why is '' when n were found, else empty, paused, ceiling or rate; ERR arity,
--   ERR lease, ERR n
-- @include shape
local wrong = misshapen('EMQ.CLAIM', 2, 2)
if wrong then return wrong end
-- @include lease
-- @include hand
-- @include gate
-- @include claimed
-- @include failed
local n, refused = natural(ARGV[2]), nil
deadline, refused = lease_until('EMQ.CLAIM', ARGV[1])
if not deadline then return refused end
if not n or n < 1 then return redis.error_reply('ERR EMQ.CLAIM n must be a positive integer') end
local want, why = gate(n)
local pending = base .. 'pending'

-- What from_flat has taken out of the set at once, and how far it has come.
local popped, at = {}, 0
local function from_flat(limit)
  while limit > 0 and #stuck < 1000 do
    local ids = redis.call('ZRANGE', pending, 0, math.min(limit, 1000) - 1)
    if #ids == 0 then return end
    redis.call('ZREMRANGEBYRANK', pending, 0, #ids - 1)
    local behind = #ids > 1 and redis.call('ZCARD', pending)
    popped = ids
    for i = 1, #ids do
      at = i
      if in_hand(ids[i]) then
        limit = limit - 1
      elseif behind and redis.call('ZCARD', pending) > behind then
        -- Its burial has released a parent, which may go before the others.
        for j = i + 1, #ids do redis.call('ZADD', pending, 0, ids[j]) end
        popped = {}
        break
      end
    end
  end
end

local function one() return 1 end

-- What has been taken when something fails is still leased and given out: a script is not rolled back.
local function serve()
  local turn
  while taken < want do
    local before, lanes = taken, redis.call('LLEN', base .. 'ring')
    if lanes == 0 then
      from_flat(want - taken)
      break
    end
    turn = math.min(turn or tonumber(mind('GET', base .. 'turn') or nil) or 0, lanes)
    if turn > 0 and from_lanes(one) then
      turn = turn - 1
    else
      from_flat(1)
      if taken > before then
        turn = redis.call('LLEN', base .. 'ring')
      elseif not from_lanes(one) then
        break
      end
    end
  end
  if turn and not nothing_but_barred() then redis.call('SET', base .. 'turn', turn) end
end

if want > 0 then
  sound('active', 'dead')
  local served, failure = pcall(serve)
  if not served then
    for i = at + 1, #popped do redis.call('ZADD', pending, 0, popped[i]) end
  end
  put_back()
  if not served and taken == 0 then return failed(failure) end
  if nothing_but_barred() then return failed(barred) end
  if taken < want then why = 'empty' end
  spend(taken)
end
return claimed(why)
