#!lua flags=no-writes
-- endings: what has become of jobs, in one look (protocol §2, ours).
-- KEYS[1] -> pending, which pins the slot
-- ARGV -> ids, at most 1,000
-- returns a job, in order: {completed, what it left} | {dead, last error, failures, stalled} | {state of its row}
--   | {absent}; the last also when it was completed and has left nothing, or what it left is gone
-- @include rows
local names = {}
for i = 1, #ARGV do names[i] = row_of(ARGV[i]) .. ':result' end
local left = redis.call('MGET', unpack(names))
local out = {}
for i, id in ipairs(ARGV) do
  if left[i] then
    out[i] = { 'completed', left[i] }
  else
    local row = fields(id, 'state', 'last_error', 'failures', 'stalled')
    if not row then
      out[i] = { 'absent' }
    elseif row[1] == 'dead' then
      out[i] = { 'dead', row[2] or '', row[3] or '0', row[4] or '0' }
    else
      out[i] = { row[1] or 'unknown' }
    end
  end
end
return out
