-- not_razable(force): the refusal for a queue that is in use, else nil (protocol §7).
-- @include base
local function not_razable(force)
  if redis.call('HEXISTS', base .. 'meta', 'paused') == 0 then return redis.error_reply('EMQSTATE not paused') end
  if force ~= 'force' and redis.call('ZCARD', base .. 'active') > 0 then
    return redis.error_reply('EMQSTATE active jobs present')
  end
end
