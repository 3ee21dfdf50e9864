#!lua
-- cron fire: one turn of a recurrence: admits its occurrences and moves it to its next slot, or does neither
-- (protocol §9, ours). The host has computed the slots.
-- KEYS[1] -> cron   KEYS[2] -> its record
-- ARGV[1] -> name   ARGV[2] -> the stamp that was read   ARGV[3] -> its next slot, ms, or ''
-- ARGV[4] -> its next run, ms, or inf   ARGV[5...] -> fresh id, slot ms, due ms, payload of each occurrence, slots rising
-- returns {fired, next ms or -1, the ids that were admitted}; {lost, ..} when the record or its score has changed since it was
--   read, or cannot be; {early, ..} before its time by the server's clock; {duplicate, ..} when an id is taken; EMQKIND
-- stays true: one slot, one occurrence. Where `overlap` is skip, none is admitted while the last one is pending,
--   scheduled, active or held; none beyond `max_runs`.
-- @include now
-- @include kind
-- @include admit
-- @include entry
-- @include occurrence
local name, target = ARGV[1], KEYS[1] .. ':' .. ARGV[1]
for i = 5, #ARGV, 4 do
  local refused = not_a_job(ARGV[i])
  if refused then return refused end
end
local score = tonumber(redis.call('ZSCORE', KEYS[1], name) or nil)
local function nothing(verdict) return { verdict, score and score < 2 ^ 53 and math.max(score, 0) or -1, {} } end
if not score or stamp_of('cron', name) ~= ARGV[2] or not is_record(target) then return nothing('lost') end
if score > now then return nothing('early') end
for i = 5, #ARGV, 4 do
  if tonumber(ARGV[i + 2]) > now then return nothing('early') end
  if known(ARGV[i]) then return nothing('duplicate') end
end
local record = redis.call('HMGET', target, 'overlap', 'last_id', 'last_slot_ms', 'max_runs', 'runs')
local last, last_slot = record[2], tonumber(record[3] or nil) or -1
local most, runs = tonumber(record[4] or nil), tonumber(record[5] or nil) or 0
-- busy(id): whether the last occurrence is still to come to its end. One in the morgue has, and so has one that is gone.
local function busy(id)
  local row = id and fields(id, 'state', 'group')
  if not row then return false end
  return place_of(id, row[2]) ~= nil
    or redis.call('ZSCORE', base .. 'schedule', id) ~= false
    or row[1] == 'awaiting_children'
end
local options = options_of(target)
if record[1] == 'skip' then sound('active') end
local ids, admitted, skipped, late = {}, 0, 0, nil
for i = 5, #ARGV, 4 do
  local id, slot = ARGV[i], tonumber(ARGV[i + 1])
  if slot > last_slot and not (most and runs + admitted >= most) then
    if record[1] == 'skip' and busy(last) then
      skipped = skipped + 1
    elseif occur(id, ARGV[i + 3], options) == 1 then
      admitted, last, last_slot = admitted + 1, id, slot
      ids[admitted] = id
      late = now - tonumber(ARGV[i + 2])
    else
      skipped = skipped + 1
    end
  end
end
if admitted > 0 then
  redis.call(
    'HSET', target, 'last_id', last, 'last_slot_ms', string.format('%.0f', last_slot), 'last_run_ms',
    string.format('%.0f', now), 'last_late_ms', string.format('%.0f', late), 'runs', string.format('%.0f', runs + admitted)
  )
end
if skipped > 0 then mind('HINCRBY', target, 'skipped', skipped) end
local slot, following = ARGV[3], ARGV[4]
if most and runs + admitted >= most then
  slot, following = '', 'inf'
end
if slot == '' then
  redis.call('HDEL', target, 'slot_ms')
else
  redis.call('HSET', target, 'slot_ms', slot)
end
redis.call('ZADD', KEYS[1], following, name)
return { 'fired', following == 'inf' and -1 or tonumber(following), ids }
