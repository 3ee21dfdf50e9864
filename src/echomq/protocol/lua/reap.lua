#!lua flags=allow-oom
-- reap: at most 100 expired leases go back to where they can be claimed, uncounted (protocol §5).
-- KEYS[1] -> active   KEYS[2] -> pending
-- ARGV[1] -> base
-- returns how many
-- @include now
-- @include place
-- @include sound
-- @include ceiling
sound('pending')
local reaped, claimable = 0, 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 100)) do
  local row = fields(id, 'state', 'group')
  if row and not pcall(sound_lane, row[2]) then
    -- Its lane is no lane: it stays in hand, and costs the others nothing.
  elseif row then
    claimable = claimable + leave(id, row[2], 'active')
    claimable = claimable + to_place(id, row[2])
    reaped = reaped + 1
  else
    redis.call('ZREM', KEYS[1], id)
  end
end
wake_freed(reaped, claimable)
return reaped
