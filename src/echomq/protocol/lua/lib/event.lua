-- publish(event): one JSON object, all values strings, on the queue's channel (protocol §10).
-- @include base
local function publish(event)
  redis.call('PUBLISH', base .. 'events', cjson.encode(event))
end
