#!lua flags=no-writes
-- survey job: everything about one job, at one instant; nothing is read whole that may be long (protocol §3, §7, ours).
-- KEYS[1] -> row
-- ARGV[1] -> id   ARGV[2] -> how many bytes of a long value are given   ARGV[3] -> how many log lines
-- ARGV[4] -> about how many children of each kind
-- returns now ms; state; score on active or schedule or ''; TTL in ms of the lock, of the kept result, -2 for none;
--   bytes of the result, result; children outstanding or nil; a list of field, bytes, value ... of the row; how many
--   log lines; a list of the last; then for processed, failed and unsuccessful a list: how many, child, value ...
-- @include now
-- @include place
local id, cap = ARGV[1], tonumber(ARGV[2])
local row = fields(id, 'state', 'group')
local state, at = 'absent', ''
if row then
  state = place_of(id, row[2]) or 'unknown'
  if state == 'active' then at = redis.call('ZSCORE', base .. 'active', id) end
  local due = redis.call('ZSCORE', base .. 'schedule', id)
  if state == 'unknown' and due then
    state, at = 'scheduled', due
  elseif state == 'unknown' and redis.call('ZSCORE', base .. 'dead', id) then
    state = 'dead'
  elseif state == 'unknown' and row[1] == 'awaiting_children' then
    state = row[1]
  end
end
local names = {}
if row then
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local n = #names
    names[n + 1], names[n + 2], names[n + 3] = all[i], #all[i + 1], string.sub(all[i + 1], 1, cap)
  end
end
local logs = redis.call('LRANGE', KEYS[1] .. ':logs', -tonumber(ARGV[3]), -1)
for i = 1, #logs do logs[i] = string.sub(logs[i], 1, cap) end
local out = {
  now, state, at, redis.call('PTTL', KEYS[1] .. ':lock'), redis.call('PTTL', KEYS[1] .. ':result'),
  redis.call('STRLEN', KEYS[1] .. ':result'), redis.call('GETRANGE', KEYS[1] .. ':result', 0, cap - 1),
  redis.call('GET', KEYS[1] .. ':dependencies'), names, redis.call('LLEN', KEYS[1] .. ':logs'), logs,
}
for _, kind in ipairs({ 'processed', 'failed', 'unsuccessful' }) do
  local key = KEYS[1] .. ':' .. kind
  local found = redis.call('HSCAN', key, 0, 'COUNT', ARGV[4])[2]
  local each = { redis.call('HLEN', key) }
  for i = 1, #found, 2 do
    each[#each + 1], each[#each + 2] = found[i], string.sub(found[i + 1], 1, cap)
  end
  out[#out + 1] = each
end
return out
