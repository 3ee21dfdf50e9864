-- strayed(id, state, from): whether the id lies in `from` beside the place that its row's state names and that has it as
-- well. Another client has left it there; whatever meets it drops it (protocol §12.1).
-- @include base
-- @include mind
local places = { active = 'active', scheduled = 'schedule', dead = 'dead' }
local function strayed(id, state, from)
  local place = places[state]
  return place and place ~= from and mind('ZSCORE', base .. place, id)
end
