-- options_of(record): how the occurrences of a `cron` record are admitted (protocol §9, ours).
-- occur(id, payload, options): admits one now; gives what admit_with gives.
-- @include admission
local function options_of(record)
  local names = { 'group', 'dedup', 'dedup_ms', 'dedup_way', 'lane' }
  local values, options = redis.call('HMGET', record, unpack(names)), {}
  for i, name in ipairs(names) do options[name] = values[i] or '' end
  if options.dedup_ms == '' then options.dedup_ms = '0' end
  return options
end
local function occur(id, payload, options)
  return admit_with(
    id, payload, nil, options.group, options.dedup, options.dedup_ms, options.dedup_way, options.lane
  )
end
