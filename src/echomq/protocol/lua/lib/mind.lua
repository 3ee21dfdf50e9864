-- mind(...): a command that only keeps books (a counter, a hint, a key of another job); nil where it fails, since books
-- are no reason to refuse or to lose a job. failed(failure): the refusal for what a protected call caught.
local function mind(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then return nil end
  return reply
end
local function failed(failure)
  return redis.error_reply(type(failure) == 'table' and failure.err or tostring(failure))
end
