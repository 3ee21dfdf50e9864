-- retire(ids, tokens, results, ttls): completes each job: row, logs and lock gone, completed + 1, a result kept
-- when its ttl is above 0. Gives one answer a job, in order: 1 retired, 0 gone, or the text of a refusal.
-- A lapsed job that waits to be claimed again is retired from there (protocol §5). Vectors are at most 1,000 long.
-- @include place
-- @include ceiling
local function retire(ids, tokens, results, ttls)
  local leases = redis.call('ZMSCORE', base .. 'active', unpack(ids))
  local answers, out, doomed, taken = {}, {}, {}, {}
  local groups = {}
  for i = 1, #ids do
    local id = ids[i]
    local row = row_of(id)
    local known = not taken[id] and fields(id, 'attempts', 'group')
    if not known then
      if leases[i] and not taken[id] then out[#out + 1] = id end
      answers[i] = 0
    elseif known[1] ~= tokens[i] then
      answers[i] = 'EMQSTALE complete token mismatch'
    else
      local group = known[2]
      local place = leases[i] and 'active' or place_of(id, group)
      if not place then
        answers[i] = 'EMQSTATE complete not active'
      else
        answers[i] = 1
        taken[id] = true
        if place == 'active' and not group then
          out[#out + 1] = id
        else
          groups[#groups + 1] = { id, group, place }
        end
        doomed[#doomed + 1] = row
        doomed[#doomed + 1] = row .. ':logs'
        doomed[#doomed + 1] = row .. ':lock'
        if ttls[i] > 0 then redis.call('SET', row .. ':result', results[i], 'PX', ttls[i]) end
      end
    end
  end
  if #out > 0 then redis.call('ZREM', base .. 'active', unpack(out)) end
  local ring = #groups > 0 and redis.call('LLEN', base .. 'ring')
  for _, job in ipairs(groups) do leave(job[1], job[2], job[3]) end
  local done = #doomed / 3
  if done > 0 then
    redis.call('DEL', unpack(doomed))
    redis.call('HINCRBY', base .. 'metrics:completed', 'count', done)
    if ring then wake(redis.call('LLEN', base .. 'ring') - ring) end
    wake_below_ceiling(done)
  end
  return answers
end
