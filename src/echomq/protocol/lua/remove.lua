#!lua flags=allow-oom
-- remove job: out of whatever place it lies in, with its row and subkeys; its parent learns of a death (protocol §7, §8).
-- KEYS[1] -> row   KEYS[2] -> pending   KEYS[3] -> active   KEYS[4] -> schedule   KEYS[5] -> dead   KEYS[6] -> de:<key>
-- ARGV[1] -> id    ARGV[2] -> deduplication key or ''
-- returns 1; -1 no row; EMQLOCK job is locked while a worker holds it
-- @include place
-- @include sound
-- @include forget
-- @include ceiling
-- @include free_key
local id = ARGV[1]
local row = fields(id, 'state', 'group', 'lock')
if not row then
  sound('pending', 'active', 'schedule', 'dead')
  for _, set in ipairs({ 'pending', 'active', 'schedule', 'dead' }) do redis.call('ZREM', base .. set, id) end
  return -1
end
if locked(id, row[3]) then return redis.error_reply('EMQLOCK job is locked') end
sound('schedule', 'dead')
sound_lane(row[2])
local told = sound_death(id)
local place = place_of(id, row[2])
local opened = place and leave(id, row[2], place)
redis.call('ZREM', base .. 'schedule', id)
redis.call('ZREM', base .. 'dead', id)
if ARGV[2] ~= '' then free_key(id, ARGV[2]) end
forget(id, told and 'removed')
if place == 'active' then wake_freed(1, opened) end
return 1
