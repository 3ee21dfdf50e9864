-- emptied(set, limit): deletes up to `limit` jobs of a set that wait to be claimed, the lowest id first, and gives how many
-- (protocol §7, §8). One whose parent cannot be told, for a key of its books holds another type, stays: it is passed over
-- and hides none behind it, up to 1,000 of them. What is released into the set meanwhile goes as well.
-- @include forget
local function emptied(set, limit)
  local gone, passed, stays, released = 0, 0, {}, false
  while gone < limit and passed < 1000 do
    local ids = redis.call('ZRANGE', set, passed, passed + math.min(limit - gone, 1000) - 1)
    if #ids == 0 and not released then break end
    -- What was released may lie before those that stay, so the look begins anew once the end is reached.
    if #ids == 0 then passed, released = 0, false end
    local out = {}
    for _, id in ipairs(ids) do
      local sound, told = true, nil
      if not stays[id] then sound, told = pcall(sound_death, id) end
      if stays[id] or not sound then
        stays[id], passed = true, passed + 1
      else
        forget(id, told and 'drained')
        out[#out + 1] = id
        released = released or told
      end
    end
    if #out > 0 then redis.call('ZREM', set, unpack(out)) end
    gone = gone + #out
  end
  return gone
end
