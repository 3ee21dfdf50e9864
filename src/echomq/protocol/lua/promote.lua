#!lua flags=allow-oom
-- promote: what is due becomes claimable, earliest first (protocol §5). Twin: EMQ.PROMOTE, for flat rows.
-- KEYS[1] -> schedule   KEYS[2] -> pending
-- ARGV[1] -> base       ARGV[2] -> batch
-- A job whose lane is no lane stays, and hides none behind it, up to 1,000 of them; where there is nothing else, the call
-- says what bars it.
-- returns how many it selected, ghosts and what lies elsewhere as well among them; ERR arity, ERR batch
-- @include shape
local wrong = misshapen('EMQ.PROMOTE', 2, 2)
if wrong then return wrong end
-- @include now
-- @include natural
-- @include place
-- @include strayed
-- @include sound
-- @include wake
-- @include failed
local left = natural(ARGV[2])
if not left or left < 1 then return redis.error_reply('ERR EMQ.PROMOTE batch must be a positive integer') end
sound('schedule', 'pending')
local schedule, pending = base .. 'schedule', base .. 'pending'
local selected, claimable, passed, barred = 0, 0, 0, nil
while left > 0 and passed < 1000 do
  local ids = redis.call('ZRANGEBYSCORE', schedule, '-inf', now, 'LIMIT', passed, math.min(left, 1000))
  if #ids == 0 then break end
  local flat, grouped, gone = {}, {}, {}
  for i = 1, #ids do
    local row = fields(ids[i], 'group', 'state')
    if row and strayed(ids[i], row[2], 'schedule') then row = nil end
    if row and row[1] then
      local readable, why = pcall(sound_lane, row[1])
      if readable then
        grouped[#grouped + 1] = { ids[i], row[1] }
        gone[#gone + 1] = ids[i]
      else
        passed, barred = passed + 1, why
      end
    else
      if row then
        flat[#flat + 1] = 0
        flat[#flat + 1] = ids[i]
      end
      gone[#gone + 1] = ids[i]
    end
  end
  if #flat > 0 then redis.call('ZADD', pending, unpack(flat)) end
  if #gone > 0 then redis.call('ZREM', schedule, unpack(gone)) end
  for i = 2, #flat, 2 do redis.call('HSET', row_of(flat[i]), 'state', 'pending') end
  for _, job in ipairs(grouped) do claimable = claimable + to_place(job[1], job[2]) end
  claimable = claimable + #flat / 2
  selected = selected + #gone
  left = left - #gone
end
if barred and selected == 0 then return failed(barred) end
wake(claimable)
return selected
