#!lua flags=allow-oom
-- extend many: a new deadline for each job that is still in hand under its token (protocol §5).
-- KEYS[1] -> active
-- ARGV[1] -> base   ARGV[2] -> lease ms   then id, token a job
-- returns the ids that were not extended: stale, not active or gone; ERR lease, ERR arity
-- @include lease
-- @include shape
-- @include rows
local wrong = misshapen_list('extend_many', 2, 2)
if wrong then return wrong end
local deadline, refused = lease_until('extend', ARGV[2])
if not deadline then return refused end
local lost = {}
for i = 3, #ARGV, 2 do
  local id = ARGV[i]
  local row = fields(id, 'attempts')
  if not row then redis.call('ZREM', KEYS[1], id) end
  if row and row[1] == ARGV[i + 1] and redis.call('ZSCORE', KEYS[1], id) then
    redis.call('ZADD', KEYS[1], 'XX', deadline, id)
  else
    lost[#lost + 1] = id
  end
end
return lost
