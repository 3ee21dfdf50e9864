-- failed(failure): the refusal for what a protected call caught.
local function failed(failure)
  return redis.error_reply(type(failure) == 'table' and failure.err or tostring(failure))
end
