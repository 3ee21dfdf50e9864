#!lua flags=allow-oom
-- reprocess: a buried job gets another life; the token stays, failures and lapses start anew (protocol §7).
-- It holds its deduplication key again, without a window unless the key names it still; where another living job has it by
-- now, the row gives it up.
-- KEYS[1] -> row   KEYS[2] -> dead   KEYS[3] -> pending
-- ARGV[1] -> id
-- returns 1; -1 no row; EMQSTATE not dead. A grouped job goes to its lane, a parent that still waits for children
--   is held again.
-- stays true: a signal of the death that still lies in the outbox is void, since the job will have another end; it is
--   taken out by value (protocol §8).
-- @include place
-- @include sound
-- @include wake
-- @include flow
-- @include holder
local id = ARGV[1]
local row = fields(id, 'state', 'group', 'parent_queue', 'parent', 'parent_policy', 'last_error', 'dedup')
if not row then
  redis.call('ZREM', base .. 'dead', id)
  return -1
end
if not redis.call('ZSCORE', base .. 'dead', id) then return redis.error_reply('EMQSTATE not dead') end
sound('pending')
sound_lane(row[2])
local waits_for = tonumber(redis.call('GET', row_of(id) .. ':dependencies') or nil) or 0
local key = row[7]
local taken = key and holder_of(key)
if row[3] and row[4] then mind('LREM', base .. 'flow:outbox', 1, death_entry(id, row[3], row[4], policy_of(row[5]), row[6] or '')) end
redis.call('ZREM', base .. 'dead', id)
redis.call('HDEL', row_of(id), 'last_error', 'stalled', 'failures', 'died_ms', 'cancel')
if taken and taken ~= id then
  redis.call('HDEL', row_of(id), 'dedup')
elseif key and redis.call('GET', base .. 'de:' .. key) ~= id then
  redis.call('SET', base .. 'de:' .. key, id)
end
if waits_for > 0 then
  redis.call('HSET', row_of(id), 'state', 'awaiting_children')
else
  wake(to_place(id, row[2]))
end
return 1
