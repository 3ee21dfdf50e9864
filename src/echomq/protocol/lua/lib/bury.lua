-- bury(id, reason, followed): into the morgue, and its parent is told; the caller has taken it out of its place
-- (protocol §3, §5, §8). `followed`: see bury_row.
-- @include flow
local function bury(id, reason, followed)
  bury_row(id, reason, followed)
  signal_death(id, reason)
end
