#!lua flags=allow-oom
-- keep: what the lease keeper does for every job in hand, in one call: a new deadline, the presence marker for two
-- leases, and the wishes to cancel that their rows carry (protocol §2, §3, §7).
-- KEYS[1] -> active
-- ARGV[1] -> base   ARGV[2] -> lease ms   ARGV[3] -> field, where the server knows hash-field TTL, or ''
-- then id, token a job
-- returns {ids that were not extended: stale, not active or gone}, {id, reason of each that is to be cancelled}
-- @include now
-- @include rows
local lease = tonumber(ARGV[2])
local lost, cancelled = {}, {}
for i = 4, #ARGV, 2 do
  local id, token = ARGV[i], ARGV[i + 1]
  local row = fields(id, 'attempts', 'cancel')
  if not row then redis.call('ZREM', KEYS[1], id) end
  if row and row[1] == token and redis.call('ZSCORE', KEYS[1], id) then
    redis.call('ZADD', KEYS[1], 'XX', now + lease, id)
    redis.call('SET', row_of(id) .. ':lock', token, 'PX', 2 * lease)
    if ARGV[3] == 'field' then
      redis.call('HSET', row_of(id), 'lock', token)
      redis.call('HPEXPIRE', row_of(id), 2 * lease, 'FIELDS', 1, 'lock')
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
