#!lua flags=allow-oom
-- reprocess: a buried job gets another life; the token stays, failures and lapses start anew (protocol §7).
-- KEYS[1] -> row   KEYS[2] -> dead   KEYS[3] -> pending
-- ARGV[1] -> id
-- returns 1; -1 no row; EMQSTATE not dead. A grouped job goes to its lane, a parent that still waits for children
--   is held again.
-- @include place
-- @include sound
-- @include wake
local id = ARGV[1]
local row = fields(id, 'state', 'group')
if not row then
  redis.call('ZREM', base .. 'dead', id)
  return -1
end
if not redis.call('ZSCORE', base .. 'dead', id) then return redis.error_reply('EMQSTATE not dead') end
sound('pending')
sound_lane(row[2])
redis.call('ZREM', base .. 'dead', id)
redis.call('HDEL', row_of(id), 'last_error', 'stalled', 'failures', 'died_ms', 'cancel')
if (tonumber(redis.call('GET', row_of(id) .. ':dependencies') or nil) or 0) > 0 then
  redis.call('HSET', row_of(id), 'state', 'awaiting_children')
else
  wake(to_place(id, row[2]))
end
return 1
