-- entry(kind, name): {score or '', stamp, field, value ...} of a name in a registry, its fields in byte order; {} when it
-- has neither a record nor a place. The stamp stands for all of it: it changes with whatever is written (protocol §9).
-- @include base
local function entry(kind, name)
  local score = redis.pcall('ZSCORE', base .. kind, name)
  if type(score) ~= 'string' then score = '' end
  local flat = redis.pcall('HGETALL', base .. kind .. ':' .. name)
  if flat.err then flat = { 'wrong', 'type' } end
  if score == '' and #flat == 0 then return {} end
  local names, values = {}, {}
  for i = 1, #flat, 2 do
    names[#names + 1] = flat[i]
    values[flat[i]] = flat[i + 1]
  end
  table.sort(names)
  local out, lengths = { score, '' }, { score }
  for _, field in ipairs(names) do
    out[#out + 1], out[#out + 2] = field, values[field]
    lengths[#lengths + 1] = #field .. ':' .. #values[field]
  end
  out[2] = redis.sha1hex(table.concat(lengths, ' ') .. table.concat(out, '', 3))
  return out
end
-- stamp_of(kind, name): its stamp, '' when there is none.
-- is_record(key): whether a record is a hash; another client may have put anything there.
local function stamp_of(kind, name) return entry(kind, name)[2] or '' end
local function is_record(key) return redis.call('TYPE', key).ok == 'hash' end
