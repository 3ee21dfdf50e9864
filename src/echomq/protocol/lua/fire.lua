#!lua
-- fire: admits one occurrence of a recurrence and moves it to its next slot, or does neither (protocol §9, ours).
-- KEYS[1] -> repeat   KEYS[2] -> record   KEYS[3] -> row   KEYS[4] -> pending
-- ARGV[1] -> name     ARGV[2] -> the score that was read   ARGV[3] -> fresh job id
-- returns {fired, next ms}; {lost, score or -1} when another pump was first or the name is gone;
--   {early, score} before its time by the server's clock; {duplicate, score} when the id is taken; EMQKIND;
--   EMQSTATE fire record unreadable
-- stays true: one slot, one occurrence; the grid is score + k x period, the next slot lies after now.
-- @include now
-- @include kind
-- @include admit
-- @include wake
local refused = not_a_job(ARGV[3])
if refused then return refused end
local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
local record = redis.call('HMGET', KEYS[2], 'every_ms', 'template')
if not record[1] and not record[2] then
  redis.call('ZREM', KEYS[1], ARGV[1])
  return { 'lost', -1 }
end
if not score then return { 'lost', -1 } end
score = tonumber(score)
if score ~= tonumber(ARGV[2]) then return { 'lost', score } end
if score > now then return { 'early', score } end
local period = tonumber(record[1] or nil)
if not period or period < 1 or period ~= math.floor(period) or not record[2] then
  return redis.error_reply('EMQSTATE fire record unreadable')
end
if known(ARGV[3]) then return { 'duplicate', score } end
local following = score + period * (math.floor((now - score) / period) + 1)
admit(ARGV[3], record[2])
redis.call('ZADD', KEYS[1], following, ARGV[1])
wake(1)
return { 'fired', following }
