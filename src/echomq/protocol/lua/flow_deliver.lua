#!lua flags=allow-oom
-- flow deliver: one signal of an outbox reaches the parent's queue (protocol §8). Safe to repeat: a child counts once.
-- What a death changes is read up through every level before anything is written.
-- KEYS[1] -> parent's row
-- ARGV[1] -> done or fail   ARGV[2] -> parent   ARGV[3] -> child   ARGV[4] -> result or error   ARGV[5] -> policy
-- ARGV[6] -> offer, optional: a death that the parent has on record, and is held again all the same, changes nothing. It
--   may be of an earlier life of the child, which the entry does not tell.
-- returns 1; the entry that the parent's own death has left in this queue's outbox, when it did; 0 such a death, offered
-- @include flow
if ARGV[1] == 'done' then
  child_done(ARGV[2], ARGV[3], ARGV[4])
  return 1
end
sound_above(ARGV[3], { ARGV[2], ARGV[5] })
if ARGV[6] == 'offer' and ARGV[5] ~= 'id' and heard_by(ARGV[2], ARGV[3]) == 'awaiting_children'
  and redis.call('HEXISTS', row_of(ARGV[2]) .. ':failed', ARGV[3]) == 1 then
  return 0
end
if child_dead(ARGV[2], ARGV[3], ARGV[5], ARGV[4]) then
  return signal_death(ARGV[2], redis.call('HGET', row_of(ARGV[2]), 'last_error')) or 1
end
return 1
