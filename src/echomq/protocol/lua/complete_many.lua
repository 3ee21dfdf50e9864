#!lua flags=allow-oom
-- complete many: retires jobs in one call, each as `complete` would (protocol §5, §12.3).
-- KEYS[1] -> active
-- ARGV -> id, token, result, ttl ms (0 keeps none), id, token ...
-- returns 1, 0 or the text of a refusal a job, in order
-- @include retire
local answers = {}
for first = 1, #ARGV, 4000 do
  local ids, tokens, results, ttls = {}, {}, {}, {}
  for i = first, math.min(first + 3999, #ARGV), 4 do
    local n = #ids + 1
    ids[n], tokens[n], results[n], ttls[n] = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  end
  for _, answer in ipairs(retire(ids, tokens, results, ttls)) do answers[#answers + 1] = answer end
end
return answers
