#!lua flags=allow-oom
-- flow deliver: one signal of an outbox reaches the parent's queue (protocol §8). Safe to repeat: a child counts once.
-- KEYS[1] -> parent's row
-- ARGV[1] -> done or fail   ARGV[2] -> parent   ARGV[3] -> child   ARGV[4] -> result or error   ARGV[5] -> policy
-- returns 1; the entry that the parent's own death has left in this queue's outbox, when it did
-- @include flow
if ARGV[1] == 'done' then
  child_done(ARGV[2], ARGV[3], ARGV[4])
elseif child_dead(ARGV[2], ARGV[3], ARGV[5], ARGV[4]) then
  return signal_death(ARGV[2], redis.call('HGET', KEYS[1], 'last_error')) or 1
end
return 1
