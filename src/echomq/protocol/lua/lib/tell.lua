-- tell(ids): whoever waits hears which jobs have ended: one message, their ids with a space between, on the queue's
-- `results` channel (docs/additions.md). A hint: where it cannot be published, whoever waits finds out by looking.
-- @include base
-- @include mind
local function tell(ids)
  if #ids > 0 then mind('PUBLISH', base .. 'results', table.concat(ids, ' ')) end
end
