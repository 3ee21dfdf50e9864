-- not_a_job(id): the refusal for an id outside the JOB namespace, else nil (protocol §1, §5); a NUL, which no id holds,
-- would run into the next field of an outbox entry.
local function not_a_job(id)
  if string.sub(id, 1, 3) ~= 'JOB' or string.find(id, '\0', 1, true) then
    return redis.error_reply('EMQKIND job id must be JOB-namespaced')
  end
end
