#!lua flags=allow-oom
-- keep: what the lease keeper does for every job in hand, in one call: a new deadline, the presence marker for two
-- leases, and the wishes to cancel that their rows carry (protocol §2, §3, §7).
-- KEYS[1] -> active
-- ARGV[1] -> base   ARGV[2] -> lease ms   ARGV[3] -> field: the row's `lock` field too, where the server knows hash-field
-- TTL; or ''
-- then id, token a job
-- returns {ids that were not extended: stale, not active or gone}, {id, reason of each that is to be cancelled};
--   ERR lease, ERR arity, before the first write
-- @include lease
-- @include shape
-- @include rows
local wrong = misshapen_list('keep', 3, 2)
if wrong then return wrong end
local deadline, refused = lease_until('keep', ARGV[2])
if not deadline then return refused end
-- No longer than 2^46 ms: servers take no further expiry of a field.
local two_leases = string.format('%.0f', math.min(2 * (deadline - now), 70368744177664))
local lost, cancelled = {}, {}
for i = 4, #ARGV, 2 do
  local id, token = ARGV[i], ARGV[i + 1]
  local row = fields(id, 'attempts', 'cancel')
  if not row then redis.call('ZREM', KEYS[1], id) end
  if row and row[1] == token and redis.call('ZSCORE', KEYS[1], id) then
    redis.call('ZADD', KEYS[1], 'XX', deadline, id)
    redis.call('SET', row_of(id) .. ':lock', token, 'PX', two_leases)
    if ARGV[3] == 'field' then
      redis.call('HSET', row_of(id), 'lock', token)
      if redis.pcall('HPEXPIRE', row_of(id), two_leases, 'FIELDS', 1, 'lock').err then
        redis.call('HDEL', row_of(id), 'lock')
      end
    end
    if row[2] then
      cancelled[#cancelled + 1] = id
      cancelled[#cancelled + 1] = row[2]
    end
  else
    lost[#lost + 1] = id
  end
end
return { lost, cancelled }
