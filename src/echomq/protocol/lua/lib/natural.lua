-- natural(text): the number that a canonical decimal from 0 to 2^53 - 1 says, else nil (protocol §4).
local LAST = 9007199254740991
local function natural(text)
  if not text or #text > 16 or not string.match(text, '^%d+$') then return nil end
  if #text > 1 and string.sub(text, 1, 1) == '0' then return nil end
  local value = tonumber(text)
  if value > LAST then return nil end
  return value
end
