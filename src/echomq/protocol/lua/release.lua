#!lua flags=allow-oom
-- release: hands a job back to where it can be claimed; attempts and failures stay (protocol §5, ours).
-- KEYS[1] -> row   KEYS[2] -> active   KEYS[3] -> pending
-- ARGV[1] -> id    ARGV[2] -> token    ARGV[3] -> base
-- returns 1; EMQSTALE job gone; EMQSTALE release token mismatch; EMQSTATE release not active
-- @include place
-- @include sound
-- @include ceiling
local id = ARGV[1]
local row = fields(id, 'attempts', 'group')
if not row then
  redis.call('ZREM', base .. 'active', id)
  return redis.error_reply('EMQSTALE job gone')
end
if row[1] ~= ARGV[2] then return redis.error_reply('EMQSTALE release token mismatch') end
if not redis.call('ZSCORE', base .. 'active', id) then return redis.error_reply('EMQSTATE release not active') end
sound('pending')
sound_lane(row[2])
local opened = leave(id, row[2], 'active')
wake_freed(1, opened + to_place(id, row[2]))
return 1
