-- wake(n): n tokens for parked consumers, while fewer than 64 lie there (protocol §12.2).
-- wake_if_first(key, member): one token when the member is now the earliest entry of the schedule or the registry.
-- A token is a hint: where the list holds another type, nobody is woken and nothing else is harmed.
-- @include base
-- @include mind
local function wake(n)
  if n < 1 then return end
  local room = 64 - (mind('LLEN', base .. 'wake') or 64)
  if n > room then n = room end
  if n < 1 then return end
  local tokens = {}
  for i = 1, n do tokens[i] = '1' end
  redis.call('LPUSH', base .. 'wake', unpack(tokens))
end
local function wake_if_first(key, member)
  if redis.call('ZRANGE', key, 0, 0)[1] == member then wake(1) end
end
