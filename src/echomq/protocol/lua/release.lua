#!lua flags=allow-oom
-- release: hands a job back to where it can be claimed; attempts and failures stay (protocol §5, ours). One that has been
-- cancelled meanwhile is buried as cancelled.
-- KEYS[1] -> row   KEYS[2] -> active   KEYS[3] -> pending
-- ARGV[1] -> id    ARGV[2] -> token    ARGV[3] -> base
-- returns 1; dead: it was cancelled; EMQSTALE job gone; EMQSTALE release token mismatch; EMQSTATE release not active
-- @include fenced
-- @include place
-- @include sound
-- @include bury
-- @include ceiling
local id = ARGV[1]
local row, stale = fenced('release', id, ARGV[2], 'group', 'cancel')
if not row then return stale end
if not redis.call('ZSCORE', base .. 'active', id) then return redis.error_reply('EMQSTATE release not active') end
sound('pending')
sound_lane(row[2])
local wish = row[3]
if wish then sound('dead') end
local told = wish and sound_death(id)
local opened = leave(id, row[2], 'active')
if wish then
  bury(id, wish, told)
  wake_freed(1, opened)
  return 'dead'
end
wake_freed(1, opened + to_place(id, row[2]))
return 1
