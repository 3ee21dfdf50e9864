#!lua flags=allow-oom
-- retry: a failed attempt goes back to the schedule, or to the morgue (protocol §3, §5). One that would go back, but has
-- been cancelled meanwhile, is buried as cancelled.
-- KEYS[1] -> active   KEYS[2] -> schedule   KEYS[3] -> dead   KEYS[4] -> row
-- ARGV[1] -> id   ARGV[2] -> token   ARGV[3] -> delay ms   ARGV[4] -> max   ARGV[5] -> error   ARGV[6] -> base
-- ARGV[7] -> id of a job that follows the failure   ARGV[8] -> its payload   ARGV[9], ARGV[10] -> of one that follows
--   the death; these four optional, an empty id for none
-- returns scheduled (attempts < max, not cancelled) or dead; EMQSTALE job gone; EMQSTALE retry token mismatch;
--   EMQSTATE retry not active; ERR arity, ERR for a delay or max that is no integer; EMQKIND for one that follows
-- @include shape
-- @include fenced
-- @include place
-- @include sound
-- @include bury
-- @include natural
-- @include ceiling
-- @include follow
local wrong = misshapen('retry', 4, #ARGV == 10 and 10 or 6)
if wrong then return wrong end
local delay, max = natural(ARGV[3]), natural(ARGV[4])
if not delay or now + delay > LAST then
  return redis.error_reply('ERR retry delay must be a non-negative integer')
end
if not max then return redis.error_reply('ERR retry max must be a non-negative integer') end
local refused = not_to_follow(7, 9)
if refused then return refused end
local id = ARGV[1]
local row, stale = fenced('retry', id, ARGV[2], 'group', 'failures', 'cancel')
if not row then return stale end
local group = row[2]
local place = place_of(id, group)
if not place then return redis.error_reply('EMQSTATE retry not active') end
sound('schedule', 'dead')
sound_lane(group)
local again, wish = (tonumber(row[1]) or 0) < max, nil
if again and row[4] then
  again, wish = false, row[4]
end
local told = not again and sound_death(id)
local opened = leave(id, group, place)
local failures = string.format('%.0f', (tonumber(row[3] or nil) or 0) + 1)
redis.call('HSET', row_of(id), 'failures', failures)
if again then
  redis.call('HSET', row_of(id), 'state', 'scheduled', 'last_error', ARGV[5])
  redis.call('ZADD', base .. 'schedule', now + delay, id)
else
  bury(id, wish or ARGV[5], told, (ARGV[9] or '') ~= '')
  follow(ARGV[9], ARGV[10])
end
follow(ARGV[7], ARGV[8])
if place == 'active' then wake_freed(1, opened) end
if not again then return 'dead' end
wake_if_first(base .. 'schedule', id)
return 'scheduled'
