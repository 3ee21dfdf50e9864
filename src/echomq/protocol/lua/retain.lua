#!lua flags=allow-oom
-- retain: keeps the morgue within the queue's settings `dead_max` and `dead_age_ms`, in bounded steps (protocol §7, ours).
-- One whose parent cannot be told, for a key of its books holds another type, stays, and up to 1,000 of them hide none
-- behind them.
-- KEYS[1] -> dead   KEYS[2] -> meta
-- ARGV[1] -> the id after which to look, or ''   ARGV[2] -> budget
-- returns {how many were purged, the id to go on after, or '' at the end}
-- @include now
-- @include purge
local meta = redis.call('HMGET', base .. 'meta', 'dead_max', 'dead_age_ms')
local most, age = tonumber(meta[1] or nil), tonumber(meta[2] or nil)
if not most and not age then return { 0, '' } end
local budget, purged = tonumber(ARGV[2]), 0
local dead = base .. 'dead'
if most then
  local over, passed = redis.call('ZCARD', dead) - most, 0
  while passed < over and purged < budget and passed < 1000 do
    local ids = redis.call('ZRANGE', dead, passed, math.min(over, passed + budget - purged) - 1)
    for _, id in ipairs(ids) do
      if purge(id) then
        over, purged = over - 1, purged + 1
      else
        passed = passed + 1
      end
    end
  end
end
local last = ''
if age then
  local from = ARGV[1] == '' and '-' or '(' .. ARGV[1]
  local ids = redis.call('ZRANGE', dead, from, '+', 'BYLEX', 'LIMIT', 0, budget)
  for _, id in ipairs(ids) do
    local row = fields(id, 'died_ms')
    local died = row and tonumber(row[1] or nil)
    if row and not died then
      redis.call('HSET', row_of(id), 'died_ms', string.format('%.0f', now))
    elseif (not row or died <= now - age) and purge(id) then
      purged = purged + 1
    end
  end
  if #ids == budget then last = ids[#ids] end
end
return { purged, last }
