-- unregistrable(verb, every, first): the refusal for a period or a first run that is no time (protocol §4, §9).
-- readable(record): the period and the template of a `repeat` record, or nil when it is none of ours to read.
-- @include natural
local function unregistrable(verb, every, first)
  local period = natural(every)
  if not period or period < 1 then return redis.error_reply('ERR ' .. verb .. ' every must be a positive integer') end
  if first and not natural(first) then return redis.error_reply('ERR ' .. verb .. ' first run must be a non-negative integer') end
end
local function readable(record)
  local fields = redis.pcall('HMGET', record, 'every_ms', 'template')
  if fields.err then return nil end
  local period = natural(fields[1])
  if not period or period < 1 or not fields[2] then return nil end
  return period, fields[2]
end
