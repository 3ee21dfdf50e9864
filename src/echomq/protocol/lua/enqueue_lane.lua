#!lua
-- enqueue to lane: admits one job into a lane (protocol §6).
-- KEYS[1] -> row   KEYS[2] -> lane   KEYS[3] -> ring   KEYS[4] -> paused   KEYS[5] -> glimit   KEYS[6] -> gactive
-- KEYS[7] -> wake
-- ARGV[1] -> id    ARGV[2] -> payload   ARGV[3] -> group
-- returns 1; 0 when the id has a row or a kept result; EMQKIND
-- @include kind
-- @include admit
-- @include place
-- @include sound
-- @include wake
local refused = not_a_job(ARGV[1])
if refused then return refused end
if known(ARGV[1]) then return 0 end
sound_lane(ARGV[3])
redis.call('HSET', KEYS[1], 'attempts', '0', 'payload', ARGV[2], 'group', ARGV[3])
wake(to_place(ARGV[1], ARGV[3]))
return 1
