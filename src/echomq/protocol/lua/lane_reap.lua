#!lua flags=allow-oom
-- reap group: expired leases of one group go back to their lane; `limit` bounds the leases scanned (protocol §6).
-- KEYS[1] -> active   KEYS[2] -> base key of the queue (any key of it)
-- ARGV[1] -> group    ARGV[2] -> limit
-- returns how many of that group
-- @include now
-- @include place
-- @include sound
-- @include ceiling
sound_lane(ARGV[1])
local reaped, claimable = 0, 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2])) do
  local row = fields(id, 'state', 'group')
  if not row then
    redis.call('ZREM', KEYS[1], id)
  elseif row[2] == ARGV[1] then
    claimable = claimable + leave(id, row[2], 'active')
    claimable = claimable + to_place(id, row[2])
    reaped = reaped + 1
  end
end
wake_freed(reaped, claimable)
return reaped
