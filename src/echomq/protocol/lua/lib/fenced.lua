-- fenced(verb, id, token, ...): the attempts and the named fields of a row, or nil and the refusal where another token
-- has it, or where it is gone, which drops the ghost (protocol §5).
-- @include rows
local function fenced(verb, id, token, ...)
  local row = fields(id, 'attempts', ...)
  if not row then
    redis.call('ZREM', base .. 'active', id)
    return nil, redis.error_reply('EMQSTALE job gone')
  end
  if row[1] ~= token then return nil, redis.error_reply('EMQSTALE ' .. verb .. ' token mismatch') end
  return row
end
