#!lua flags=allow-oom
-- complete many: retires jobs in one call, each as `complete` would (protocol §5, §12.3).
-- Twin: EMQ.COMPLETEMANY, for flat jobs in hand that are in no flow and hold no deduplication key.
-- KEYS[1] -> active
-- ARGV -> id, token, result, ttl ms (0 keeps none), id, token ...
-- returns a job, in order: 1 retired, 2 retired with a signal left in the outbox, 0 gone, or the text of a refusal;
--   ERR arity, ERR ttl, EMQKIND, before the first write
-- @include shape
local wrong = misshapen_list('EMQ.COMPLETEMANY', 0, 4, 1)
if wrong then return wrong end
-- @include kind
-- @include natural
-- @include retire
for i = 4, #ARGV, 4 do
  if not natural(ARGV[i]) then
    return redis.error_reply('ERR EMQ.COMPLETEMANY ttl must be a non-negative integer')
  end
end
for i = 1, #ARGV, 4 do
  local refused = not_a_job(ARGV[i])
  if refused then return refused end
end
local answers = {}
for first = 1, #ARGV, 4000 do
  local ids, tokens, results, ttls = {}, {}, {}, {}
  for i = first, math.min(first + 3999, #ARGV), 4 do
    local n = #ids + 1
    ids[n], tokens[n], results[n], ttls[n] = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  end
  for _, answer in ipairs(retire(ids, tokens, results, ttls)) do answers[#answers + 1] = answer end
end
return answers
