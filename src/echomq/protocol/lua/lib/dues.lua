-- dues(key, upto, limit, each): calls each(name, score) for the names of a registry whose next run is due by `upto`,
-- oldest first, `limit` at most; a name without a record is swept. One that is no UTF-8 is another client's, which ours
-- cannot say: it is passed over and hides none behind it, up to 10,000 of them.
-- @include base
-- is_utf8(text): as a host would read it: no overlong form, no half of a surrogate pair, nothing beyond U+10FFFF.
local function is_utf8(text)
  local i, n = 1, #text
  while i <= n do
    local a, b = string.byte(text, i, i + 1)
    if a < 128 then
      i = i + 1
    else
      local more = a >= 240 and 3 or a >= 224 and 2 or 1
      local low = a == 224 and 160 or a == 240 and 144 or 128
      local high = a == 237 and 159 or a == 244 and 143 or 191
      if a < 194 or a > 244 or not b or b < low or b > high then return false end
      if not string.match(string.sub(text, i + 1, i + more), '^' .. string.rep('[\128-\191]', more) .. '$') then return false end
      i = i + more + 1
    end
  end
  return true
end
local function dues(key, upto, limit, each)
  local from, left = 0, tonumber(limit)
  while left > 0 and from < tonumber(limit) + 10000 do
    local members = redis.call('ZRANGEBYSCORE', key, '-inf', upto, 'WITHSCORES', 'LIMIT', from, left)
    if #members == 0 then return end
    for i = 1, #members, 2 do
      if not is_utf8(members[i]) then
        from = from + 1
      elseif redis.call('EXISTS', key .. ':' .. members[i]) == 1 then
        each(members[i], members[i + 1])
        from, left = from + 1, left - 1
      else
        redis.call('ZREM', key, members[i])
      end
    end
  end
end
-- plain_dues(key, upto, limit): name, score, every ms, template of each; every ms is 0 for one that cannot be read.
-- @include recurrence
local function plain_dues(key, upto, limit)
  local out = {}
  dues(key, upto, limit, function(name, score)
    local n, period, template = #out, readable(key .. ':' .. name)
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = name, score, period or 0, template or ''
  end)
  return out
end
