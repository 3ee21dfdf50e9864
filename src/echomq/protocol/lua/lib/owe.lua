-- owe(id, reason): where the envelope of a job that has just died names a job that is to follow its death, that is noted
-- in `owed`, with all that the one who admits it has to know (docs/additions.md): id, attempts, failures, stalled, the
-- time of death, the length of the reason, each ended by a NUL, then the reason and the payload.
-- @include rows
-- @include now
-- @include mind
local function owe(id, reason)
  local row = fields(id, 'payload', 'attempts', 'failures', 'stalled')
  if not row or not row[1] or not string.find(row[1], '"on_dead":', 1, true) then return end
  local head = { id, row[2] or '0', row[3] or '0', row[4] or '0', string.format('%.0f', now), #reason, '' }
  mind('RPUSH', base .. 'owed', table.concat(head, '\0') .. reason .. row[1])
end
