-- not_a_job(id): the refusal for an id outside the JOB namespace, else nil (protocol §1, §5).
local function not_a_job(id)
  if string.sub(id, 1, 3) ~= 'JOB' then
    return redis.error_reply('EMQKIND job id must be JOB-namespaced')
  end
end
