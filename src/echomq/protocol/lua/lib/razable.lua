-- not_razable(force): the refusal for a queue that is in use, else nil (protocol §7). Where `meta` is no hash no claim is
-- served, as on a paused queue, and where `active` is no set no job is in hand.
-- @include base
-- @include mind
local function not_razable(force)
  if mind('HEXISTS', base .. 'meta', 'paused') == 0 then return redis.error_reply('EMQSTATE not paused') end
  if force ~= 'force' and (mind('ZCARD', base .. 'active') or 0) > 0 then
    return redis.error_reply('EMQSTATE active jobs present')
  end
end
