#!lua flags=allow-oom
-- promote: what is due becomes claimable, earliest first (protocol §5). Twin: EMQ.PROMOTE, for flat rows.
-- KEYS[1] -> schedule   KEYS[2] -> pending
-- ARGV[1] -> base       ARGV[2] -> batch
-- returns how many it selected, ghosts among them; ERR arity, ERR batch
-- @include shape
-- @include now
-- @include natural
-- @include place
-- @include wake
local wrong = misshapen('EMQ.PROMOTE', 2, 2)
if wrong then return wrong end
local left = natural(ARGV[2])
if not left or left < 1 then return redis.error_reply('ERR EMQ.PROMOTE batch must be a positive integer') end
local selected, claimable = 0, 0
while left > 0 do
  local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, math.min(left, 1000))
  if #ids == 0 then break end
  local flat = {}
  redis.call('ZREM', KEYS[1], unpack(ids))
  for i = 1, #ids do
    local row = fields(ids[i], 'state', 'group')
    if row then
      if row[2] then
        claimable = claimable + to_place(ids[i], row[2])
      else
        claimable = claimable + 1
        redis.call('HSET', row_of(ids[i]), 'state', 'pending')
        flat[#flat + 1] = 0
        flat[#flat + 1] = ids[i]
      end
    end
  end
  if #flat > 0 then redis.call('ZADD', KEYS[2], unpack(flat)) end
  selected = selected + #ids
  left = left - #ids
end
wake(claimable)
return selected
