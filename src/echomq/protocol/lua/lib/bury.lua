-- bury(id, reason, told, followed): into the morgue, and its parent is told; the caller has taken it out of its place
-- (protocol §3, §5, §8), and has asked sound_death before its first write. `told`: what sound_death has said;
-- `followed`: see bury_row.
-- @include flow
local function bury(id, reason, told, followed)
  bury_row(id, reason, followed)
  if told then signal_death(id, reason) end
end
