#!lua flags=allow-oom
-- reassign: a claimable job moves to another lane (protocol §6).
-- KEYS[1] -> row   KEYS[2] -> lane of dst   KEYS[3] -> ring   KEYS[4] -> paused   KEYS[5] -> glimit   KEYS[6] -> gactive
-- KEYS[7] -> wake
-- ARGV[1] -> id    ARGV[2] -> dst   ARGV[3] -> base
-- returns 1; 0 same lane; -1 no row or no group; -2 not pending
-- @include place
-- @include sound
-- @include wake
local id, dst = ARGV[1], ARGV[2]
local row = fields(id, 'group')
if not row or not row[1] then return -1 end
if not redis.call('ZSCORE', lane_of(row[1]), id) then return -2 end
if row[1] == dst then return 0 end
sound('pending')
sound_lane(row[1])
sound_lane(dst)
local before = lane_served(row[1])
leave(id, row[1], 'pending')
redis.call('HSET', row_of(id), 'group', dst)
wake(to_place(id, dst) + lane_served(row[1]) - before)
return 1
