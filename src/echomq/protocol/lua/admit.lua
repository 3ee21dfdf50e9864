#!lua
-- admit: one job with options: a lane, a run-at, a deduplication key; each as the plain admission would (protocol §5,
-- §6, §7 ours).
-- KEYS[1] -> row
-- ARGV[1] -> id   ARGV[2] -> payload   ARGV[3] -> in, at or '' for now   ARGV[4] -> ms   ARGV[5] -> group or ''
-- ARGV[6] -> deduplication key or ''   ARGV[7] -> its window in ms, 0 for none   ARGV[8] -> keep or replace
-- ARGV[9] -> the text that the lane was named by, or ''
-- returns 1; 0 when the id has a row or a kept result; the id of the living job that holds the deduplication key,
--   whose payload is replaced when asked for and it is not in hand; ERR mode, ERR due, EMQKIND
-- @include due
-- @include kind
-- @include admit
-- @include admission
local due, refused
if ARGV[3] ~= '' then
  due, refused = due_at('EMQ.SCHEDULE', ARGV[3], ARGV[4])
  if not due then return refused end
end
refused = not_a_job(ARGV[1])
if refused then return refused end
if known(ARGV[1]) then return 0 end
return admit_with(ARGV[1], ARGV[2], due, ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9])
