-- bury(id, reason): into the morgue, and its parent is told; the caller has taken it out of its place (protocol §3,
-- §5, §8).
-- @include flow
local function bury(id, reason)
  bury_row(id, reason)
  signal_death(id, reason)
end
