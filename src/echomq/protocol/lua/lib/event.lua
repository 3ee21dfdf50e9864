-- publish(event): one JSON object, all values strings, on the queue's channel (protocol §10). An event is at most once,
-- so where the user may not publish there, nobody hears of it and nothing else fails.
-- @include base
-- @include mind
local function publish(event)
  mind('PUBLISH', base .. 'events', cjson.encode(event))
end
