#!lua flags=allow-oom
-- stalled sweep: each expired lease is counted as a lapse; at max the job is buried, below it goes back to where
-- it can be claimed (protocol §5).
-- KEYS[1] -> active   KEYS[2] -> pending   KEYS[3] -> dead
-- ARGV[1] -> base     ARGV[2] -> max_stalled   ARGV[3] -> limit
-- returns {recovered ids, dead ids}
-- @include now
-- @include place
-- @include bury
-- @include ceiling
local max = tonumber(ARGV[2])
local recovered, dead = {}, {}
local ring = redis.call('LLEN', base .. 'ring')
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[3])) do
  local row = fields(id, 'stalled', 'group')
  if row then
    local lapses = (tonumber(row[1] or nil) or 0) + 1
    redis.call('HSET', row_of(id), 'stalled', string.format('%.0f', lapses))
    leave(id, row[2], 'active')
    if lapses >= max then
      bury(id, 'stalled')
      dead[#dead + 1] = id
    else
      to_place(id, row[2])
      recovered[#recovered + 1] = id
    end
  else
    redis.call('ZREM', KEYS[1], id)
  end
end
wake(#recovered)
if #dead > 0 then
  wake(redis.call('LLEN', base .. 'ring') - ring)
  wake_below_ceiling(#dead)
end
return { recovered, dead }
