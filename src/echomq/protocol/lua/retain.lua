#!lua flags=allow-oom
-- retain: keeps the morgue within the queue's settings `dead_max` and `dead_age_ms`, in bounded steps (protocol §7, ours).
-- KEYS[1] -> dead   KEYS[2] -> meta
-- ARGV[1] -> the id after which to look, or ''   ARGV[2] -> budget
-- returns {how many were purged, the id to go on after, or '' at the end}
-- @include now
-- @include forget
local meta = redis.call('HMGET', KEYS[2], 'dead_max', 'dead_age_ms')
local most, age = tonumber(meta[1] or nil), tonumber(meta[2] or nil)
if not most and not age then return { 0, '' } end
local budget, purged = tonumber(ARGV[2]), 0
local function purge(id)
  redis.call('ZREM', KEYS[1], id)
  forget(id, 'purged')
  purged = purged + 1
end
if most then
  local over = math.min(redis.call('ZCARD', KEYS[1]) - most, budget)
  if over > 0 then
    for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, over - 1)) do purge(id) end
  end
end
local last = ''
if age then
  local from = ARGV[1] == '' and '-' or '(' .. ARGV[1]
  local ids = redis.call('ZRANGE', KEYS[1], from, '+', 'BYLEX', 'LIMIT', 0, budget)
  for _, id in ipairs(ids) do
    local row = fields(id, 'died_ms')
    local died = row and tonumber(row[1] or nil)
    if row and not died then
      redis.call('HSET', row_of(id), 'died_ms', string.format('%.0f', now))
    elseif not row or died <= now - age then
      purge(id)
    end
  end
  if #ids == budget then last = ids[#ids] end
end
return { purged, last }
