#!lua flags=allow-oom
-- reap: at most 100 expired leases go back to where they can be claimed, uncounted (protocol §5).
-- KEYS[1] -> active   KEYS[2] -> pending
-- ARGV[1] -> base
-- returns how many
-- @include place
-- @include lapsed
-- @include ceiling
sound('pending')
local reaped, claimable = 0, 0
lapsed(100, function(id, group)
  claimable = claimable + leave(id, group, 'active')
  claimable = claimable + to_place(id, group)
  reaped = reaped + 1
end)
wake_freed(reaped, claimable)
return reaped
