-- due_at(verb, mode, value): the run-at that a pair `in|at value` means, or nil and the refusal (protocol §5).
-- @include now
-- @include natural
local function due_at(verb, mode, value)
  if mode ~= 'in' and mode ~= 'at' then
    return nil, redis.error_reply('ERR ' .. verb .. ' mode must be in or at')
  end
  local due = natural(value)
  if due and mode == 'in' then due = due + now end
  if not due or due > LAST then
    return nil, redis.error_reply('ERR ' .. verb .. ' due must be a non-negative integer')
  end
  return due
end
