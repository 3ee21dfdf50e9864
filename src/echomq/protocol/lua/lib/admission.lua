-- admit_with(id, payload, due, group, key, window, way, lane): one job with options; `due` is a run-at or nil, the others
-- '' (the window '0') where they say nothing (protocol §5, §6, §7 ours). Gives 1, or the id of the living job that holds
-- the deduplication key, whose payload is replaced when `way` says so and it is not in hand. The caller has checked id.
-- @include rows
-- @include holder
-- @include place
-- @include sound
-- @include wake
local function admit_with(id, payload, due, group, key, window, way, lane)
  local row = row_of(id)
  sound('pending', 'schedule')
  sound_lane(group ~= '' and group)
  if key ~= '' then
    local holder, state = holder_of(key)
    if holder then
      if way == 'replace' and state ~= 'active' then redis.call('HSET', row_of(holder), 'payload', payload) end
      return holder
    end
    if window == '0' then
      redis.call('SET', base .. 'de:' .. key, id)
    else
      redis.call('SET', base .. 'de:' .. key, id, 'PX', window)
    end
    redis.call('HSET', row, 'dedup', key)
  end
  redis.call('HSET', row, 'attempts', '0', 'payload', payload)
  if group ~= '' then
    redis.call('HSET', row, 'group', group)
    if lane ~= '' then mind('HSETNX', base .. 'lanes', group, lane) end
  end
  if due then
    redis.call('HSET', row, 'state', 'scheduled')
    redis.call('ZADD', base .. 'schedule', due, id)
    wake_if_first(base .. 'schedule', id)
  else
    wake(to_place(id, group ~= '' and group))
  end
  return 1
end
