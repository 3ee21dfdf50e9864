#!lua flags=allow-oom
-- cancel job: a job that is not in hand goes to the morgue as cancelled; one in hand keeps the wish in its row, and its
-- holder is told by an event, its next holder by the row (protocol §3, ours).
-- KEYS[1] -> row
-- ARGV[1] -> id   ARGV[2] -> reason
-- returns buried; dead: it was so before, and stays as it died; requested; -1 no row
-- @include place
-- @include sound
-- @include bury
-- @include event
local id = ARGV[1]
local row = fields(id, 'state', 'group')
if not row then return -1 end
if redis.call('ZSCORE', base .. 'dead', id) then return 'dead' end
local place = place_of(id, row[2])
if place == 'active' then
  redis.call('HSET', KEYS[1], 'cancel', ARGV[2])
  publish({ event = 'cancelled', job = id, error = ARGV[2], state = 'active' })
  return 'requested'
end
sound('schedule', 'dead')
sound_lane(row[2])
local told = sound_death(id)
if place then leave(id, row[2], place) end
redis.call('ZREM', base .. 'schedule', id)
bury(id, ARGV[2], told)
publish({ event = 'cancelled', job = id, error = ARGV[2], state = 'dead' })
return 'buried'
