-- misshapen(verb, keys, args): Redis's own refusal for a call with other keys or arguments, else nil (protocol §5).
-- misshapen_list(verb, first, step): the same for a list of arguments that comes in steps after the first few.
local function misshapen_error(verb)
  return redis.error_reply("ERR wrong number of arguments for '" .. string.lower(verb) .. "' command")
end
local function misshapen(verb, keys, args)
  if #KEYS ~= keys or #ARGV ~= args then return misshapen_error(verb) end
end
local function misshapen_list(verb, first, step)
  if #ARGV <= first or (#ARGV - first) % step ~= 0 then return misshapen_error(verb) end
end
