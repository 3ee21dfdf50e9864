-- misshapen(verb, keys, args): the refusal for a call with more or fewer words, which is Redis's own, or with another
-- number of keys among them, else nil (protocol §5).
-- misshapen_list(verb, first, step, keys): the same for a list of arguments that comes in steps after the first few;
-- without `keys` it does not look at their number.
local function misshapen_error(verb)
  return redis.error_reply("ERR wrong number of arguments for '" .. string.lower(verb) .. "' command")
end
local function miscounted(verb, keys)
  if #KEYS ~= keys then return redis.error_reply('ERR ' .. verb .. ' number of keys must be ' .. keys) end
end
local function misshapen(verb, keys, args)
  if #KEYS + #ARGV ~= keys + args then return misshapen_error(verb) end
  return miscounted(verb, keys)
end
local function misshapen_list(verb, first, step, keys)
  local count = #ARGV + #KEYS - (keys or #KEYS) - first
  if count <= 0 or count % step ~= 0 then return misshapen_error(verb) end
  if keys then return miscounted(verb, keys) end
end
