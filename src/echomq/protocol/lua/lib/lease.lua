-- lease_until(verb, text): the deadline of a lease of so many ms from now, or nil and the refusal (protocol §4).
-- @include now
-- @include natural
local function lease_until(verb, text)
  local lease = natural(text)
  if not lease or lease < 1 or now + lease > LAST then
    return nil, redis.error_reply('ERR ' .. verb .. ' lease must be a positive integer')
  end
  return now + lease
end
