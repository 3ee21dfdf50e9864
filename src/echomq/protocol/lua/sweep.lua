#!lua flags=allow-oom
-- stalled sweep: each expired lease is counted as a lapse; at max the job is buried, below it goes back to where
-- it can be claimed (protocol §5). One that cannot go back, or whose death cannot reach its parent, for a key holds another
-- type, stays in hand uncounted, and harms no other.
-- KEYS[1] -> active   KEYS[2] -> pending   KEYS[3] -> dead
-- ARGV[1] -> base     ARGV[2] -> max_stalled   ARGV[3] -> limit   ARGV[4] -> the name of a worker, optional
-- returns {recovered ids, dead ids}, and with a worker 1 when the registry does not know it (any more), else 0; ERR for a
--   max or limit that is no positive integer
-- @include place
-- @include lapsed
-- @include bury
-- @include natural
-- @include ceiling
local max, limit = natural(ARGV[2]), natural(ARGV[3])
if not max or max < 1 then return redis.error_reply('ERR sweep max_stalled must be a positive integer') end
if not limit or limit < 1 then return redis.error_reply('ERR sweep limit must be a positive integer') end
sound('pending', 'dead')
local recovered, dead, claimable = {}, {}, 0
lapsed(limit, function(id, group, stalled)
  local lapses = (tonumber(stalled or nil) or 0) + 1
  local sound, told = true, nil
  if lapses >= max then sound, told = pcall(sound_death, id) end
  if not sound then return false end
  redis.call('HSET', row_of(id), 'stalled', string.format('%.0f', lapses))
  claimable = claimable + leave(id, group, 'active')
  if lapses >= max then
    bury(id, 'stalled', told)
    dead[#dead + 1] = id
  else
    claimable = claimable + to_place(id, group)
    recovered[#recovered + 1] = id
  end
end)
wake_freed(#recovered + #dead, claimable)
if not ARGV[4] then return { recovered, dead } end
return { recovered, dead, mind('ZSCORE', base .. 'workers', ARGV[4]) == false and 1 or 0 }
