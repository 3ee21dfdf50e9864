#!lua
-- fire: admits one occurrence of a recurrence and moves it to its next slot, or does neither (protocol §9, ours).
-- KEYS[1] -> repeat   KEYS[2] -> record   KEYS[3] -> row   KEYS[4] -> pending
-- ARGV[1] -> name     ARGV[2] -> the score that was read   ARGV[3] -> fresh job id
-- ARGV[4] -> payload, ARGV[5] -> SHA-1 of the template that it was made of; both optional: else the template is admitted
-- returns {fired, next ms}; {lost, score or -1} when another pump was first, the name is gone or has another template;
--   {early, score} before its time by the server's clock; {duplicate, score} when the id is taken;
--   {unreadable, -1} for a record without a period or a template: its member is dropped, so that it cannot stay due
--   for ever; EMQKIND
-- stays true: one slot, one occurrence; the grid is score + k x period, the next slot lies after now.
-- @include now
-- @include recurrence
-- @include kind
-- @include admit
-- @include wake
local refused = not_a_job(ARGV[3])
if refused then return refused end
local record = KEYS[1] .. ':' .. ARGV[1]
local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not score or redis.call('EXISTS', record) == 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
  return { 'lost', -1 }
end
score = tonumber(score)
if score ~= tonumber(ARGV[2]) then return { 'lost', score } end
if score > now then return { 'early', score } end
local period, template = readable(record)
if not period then
  redis.call('ZREM', KEYS[1], ARGV[1])
  return { 'unreadable', -1 }
end
if ARGV[4] and redis.sha1hex(template) ~= ARGV[5] then return { 'lost', score } end
if known(ARGV[3]) then return { 'duplicate', score } end
local grid = math.max(score, 0)
local following = math.min(grid + period * (math.floor((now - grid) / period) + 1), LAST)
admit(ARGV[3], ARGV[4] or template)
redis.call('ZADD', KEYS[1], following, ARGV[1])
wake(1)
return { 'fired', following }
