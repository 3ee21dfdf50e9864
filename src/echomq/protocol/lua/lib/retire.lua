-- retire(ids, tokens, results, ttls): completes each job: row, logs and lock gone, completed + 1, its deduplication key
-- freed, its parent told; a result is kept when its ttl, a canonical decimal, is not 0, and whoever waits for it is told.
-- Gives one answer a job, in order: 1 retired, 2 retired with a signal left in the outbox, 0 gone, or the text of a
-- refusal. A lapsed job that waits to be claimed again is retired from there (protocol §5, §8). Vectors are at most 1,000
-- members long.
-- @include place
-- @include sound
-- @include flow
-- @include ceiling
-- @include tell
-- @include free_key
local GUARD_MS = 86400000
-- guard(rows): a finished parent's subkeys stay one day, against redelivery.
local function guard(rows)
  local counts = {}
  for i = 1, #rows do counts[i] = rows[i] .. ':dependencies' end
  if redis.call('EXISTS', unpack(counts)) == 0 then return end
  for i = 1, #rows do
    for _, subkey in ipairs({ ':dependencies', ':processed', ':failed', ':unsuccessful' }) do
      redis.call('PEXPIRE', rows[i] .. subkey, GUARD_MS)
    end
  end
end
local function retire(ids, tokens, results, ttls)
  local leases = redis.call('ZMSCORE', base .. 'active', unpack(ids))
  local answers, out, rows, doomed, taken, moved, kept = {}, {}, {}, {}, {}, {}, {}
  local freed, opened = 0, 0
  for i = 1, #ids do
    local id = ids[i]
    local known = not taken[id] and fields(id, 'attempts', 'group', 'parent', 'parent_queue', 'dedup')
    if not known then
      if leases[i] and not taken[id] then out[#out + 1] = id end
      answers[i] = 0
    elseif known[1] ~= tokens[i] then
      answers[i] = 'EMQSTALE complete token mismatch'
    else
      local group = known[2]
      local found, place = true, 'active'
      if not leases[i] then found, place = pcall(place_of, id, group) end
      if found and not place then
        answers[i] = 'EMQSTATE complete not active'
      elseif not found or (group and not pcall(sound_lane, group))
        or (known[3] and not pcall(signal_done, id, known[3], known[4], results[i])) then
        answers[i] = 'ERR complete cannot write its lane or its parent'
      else
        local row = row_of(id)
        answers[i] = known[3] and known[4] and 2 or 1
        taken[id] = true
        if place == 'active' then freed = freed + 1 end
        if place == 'active' and not group then
          out[#out + 1] = id
        else
          moved[#moved + 1] = { id, group, place }
        end
        rows[#rows + 1] = row
        doomed[#doomed + 1] = row
        doomed[#doomed + 1] = row .. ':logs'
        doomed[#doomed + 1] = row .. ':lock'
        free_key(id, known[5])
        if ttls[i] ~= '0' then
          redis.call('SET', row .. ':result', results[i], 'PX', ttls[i])
          kept[#kept + 1] = id
        end
      end
    end
  end
  if #out > 0 then redis.call('ZREM', base .. 'active', unpack(out)) end
  for _, job in ipairs(moved) do opened = opened + leave(job[1], job[2], job[3]) end
  if #rows == 0 then return answers end
  redis.call('DEL', unpack(doomed))
  guard(rows)
  mind('HINCRBY', base .. 'metrics:completed', 'count', #rows)
  wake_freed(freed, opened)
  tell(kept)
  return answers
end
