-- dues(key, now, limit, each): calls each(name, score) for the names of a registry whose next run has come, oldest first;
-- a name without a record is swept.
-- @include base
local function dues(key, upto, limit, each)
  local members = redis.call('ZRANGEBYSCORE', key, '-inf', upto, 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 1, #members, 2 do
    if redis.call('EXISTS', key .. ':' .. members[i]) == 1 then
      each(members[i], members[i + 1])
    else
      redis.call('ZREM', key, members[i])
    end
  end
end
-- plain_dues(key, now, limit): name, score, every ms, template of each; every ms is 0 for a record that cannot be read.
-- @include recurrence
local function plain_dues(key, upto, limit)
  local out = {}
  dues(key, upto, limit, function(name, score)
    local n, period, template = #out, readable(key .. ':' .. name)
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = name, score, period or 0, template or ''
  end)
  return out
end
