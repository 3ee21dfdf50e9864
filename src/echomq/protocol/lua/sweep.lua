#!lua flags=allow-oom
-- stalled sweep: each expired lease is counted as a lapse; at max the job is buried, below it goes back to where
-- it can be claimed (protocol §5). A cancelled one is buried as cancelled. One that cannot go back, or whose death cannot reach its parent, for a key holds another
-- type, stays in hand uncounted, and harms no other.
-- KEYS[1] -> active   KEYS[2] -> pending   KEYS[3] -> dead
-- ARGV[1] -> base     ARGV[2] -> max_stalled   ARGV[3] -> limit   ARGV[4] -> the name of a worker, optional
-- returns {recovered ids, dead ids, 1 when the registry does not know the worker (any more), else 0, {id, reason, ...} of
--   the dead that were cancelled}; ERR for a max or limit that is no positive integer
-- @include place
-- @include lapsed
-- @include bury
-- @include natural
-- @include ceiling
local max, limit = natural(ARGV[2]), natural(ARGV[3])
if not max or max < 1 then return redis.error_reply('ERR sweep max_stalled must be a positive integer') end
if not limit or limit < 1 then return redis.error_reply('ERR sweep limit must be a positive integer') end
sound('pending', 'dead')
local recovered, dead, cancelled, claimable = {}, {}, {}, 0
lapsed(limit, function(id, group, stalled, wish)
  local lapses = (tonumber(stalled or nil) or 0) + 1
  local dies = wish or lapses >= max
  local sound, told = true, nil
  if dies then sound, told = pcall(sound_death, id) end
  if not sound then return false end
  redis.call('HSET', row_of(id), 'stalled', string.format('%.0f', lapses))
  claimable = claimable + leave(id, group, 'active')
  if dies then
    bury(id, wish or 'stalled', told)
    dead[#dead + 1] = id
    if wish then cancelled[#cancelled + 1], cancelled[#cancelled + 2] = id, wish end
  else
    claimable = claimable + to_place(id, group)
    recovered[#recovered + 1] = id
  end
end)
wake_freed(#recovered + #dead, claimable)
local unknown = ARGV[4] and mind('ZSCORE', base .. 'workers', ARGV[4]) == false
return { recovered, dead, unknown and 1 or 0, cancelled }
