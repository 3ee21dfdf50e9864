-- mind(...): a command that only keeps books (a counter, a hint, a key of another job); nil where it fails, since books
-- are no reason to refuse or to lose a job.
local function mind(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then return nil end
  return reply
end
