#!lua
-- enqueue many: admits flat jobs in one call, each as `enqueue` would (protocol §5, §12.3). Twin: EMQ.ENQUEUEMANY.
-- KEYS[1] -> pending
-- ARGV -> id, payload, id, payload ...
-- returns 1 or 0 a job, in order; EMQKIND for any of them refuses all, before the first write; ERR arity
-- @include shape
local wrong = misshapen_list('EMQ.ENQUEUEMANY', 0, 2, 1)
if wrong then return wrong end
-- @include kind
-- @include admit
-- @include sound
-- @include wake
for i = 1, #ARGV, 2 do
  local refused = not_a_job(ARGV[i])
  if refused then return refused end
end
local answers, vector, admitted = {}, {}, 0
sound('pending')
local function flush()
  if #vector > 0 then redis.call('ZADD', base .. 'pending', unpack(vector)) end
  vector = {}
end
for i = 1, #ARGV, 2 do
  local id = ARGV[i]
  if known(id) then
    answers[#answers + 1] = 0
  else
    redis.call('HSET', row_of(id), 'state', 'pending', 'attempts', '0', 'payload', ARGV[i + 1])
    vector[#vector + 1] = 0
    vector[#vector + 1] = id
    admitted = admitted + 1
    answers[#answers + 1] = 1
    if #vector >= 2000 then flush() end
  end
end
flush()
wake(admitted)
return answers
