-- lapsed(limit, each): calls each(id, group, stalled, cancel) for jobs whose lease has ended, the longest ended first, `limit` at
-- most, ghosts counted, which are dropped. `each` takes the job out of active, or gives false and has written nothing.
-- Such a one, and one whose lane is no lane, stays in hand: it is passed over and hides none behind it, up to 1,000 of
-- them.
-- @include now
-- @include rows
-- @include sound
local function lapsed(limit, each)
  local passed, left, broken = 0, limit, {}
  while left > 0 and passed < 1000 do
    local ids = redis.call('ZRANGEBYSCORE', base .. 'active', '-inf', now, 'LIMIT', passed, math.min(left, 1000))
    if #ids == 0 then return end
    for _, id in ipairs(ids) do
      local row = fields(id, 'state', 'group', 'stalled', 'cancel')
      local group = row and row[2]
      if group and broken[group] == nil then broken[group] = not pcall(sound_lane, group) end
      if (group and broken[group]) or (row and each(id, group, row[3], row[4]) == false) then
        passed = passed + 1
      else
        left = left - 1
        if not row then redis.call('ZREM', base .. 'active', id) end
      end
    end
  end
end
