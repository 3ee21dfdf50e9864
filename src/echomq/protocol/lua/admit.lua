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
-- @include place
-- @include sound
-- @include wake
local id, payload, group, key = ARGV[1], ARGV[2], ARGV[5], ARGV[6]
local due, refused
if ARGV[3] ~= '' then
  due, refused = due_at('EMQ.SCHEDULE', ARGV[3], ARGV[4])
  if not due then return refused end
end
refused = not_a_job(id)
if refused then return refused end
if known(id) then return 0 end
sound('pending', 'schedule')
sound_lane(group ~= '' and group)
if key ~= '' then
  local holder = redis.call('GET', base .. 'de:' .. key)
  local row = holder and fields(holder, 'state')
  if row and row[1] ~= 'dead' then
    if ARGV[8] == 'replace' and row[1] ~= 'active' then redis.call('HSET', row_of(holder), 'payload', payload) end
    return holder
  end
  if ARGV[7] == '0' then
    redis.call('SET', base .. 'de:' .. key, id)
  else
    redis.call('SET', base .. 'de:' .. key, id, 'PX', ARGV[7])
  end
  redis.call('HSET', KEYS[1], 'dedup', key)
end
redis.call('HSET', KEYS[1], 'attempts', '0', 'payload', payload)
if group ~= '' then
  redis.call('HSET', KEYS[1], 'group', group)
  if ARGV[9] ~= '' then mind('HSETNX', base .. 'lanes', group, ARGV[9]) end
end
if due then
  redis.call('HSET', KEYS[1], 'state', 'scheduled')
  redis.call('ZADD', base .. 'schedule', due, id)
  wake_if_first(id)
else
  wake(to_place(id, group ~= '' and group))
end
return 1
