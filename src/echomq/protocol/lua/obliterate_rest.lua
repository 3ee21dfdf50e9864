#!lua flags=allow-oom
-- obliterate rest: keys of a paused queue that none of its sets or books leads to, found by a walk of the server's
-- keys: held parents whose children lie elsewhere, guards, kept results, orphan deduplication keys (protocol §7). What was
-- admitted beside the walk is left whole to obliterate, which takes a set and its rows in one step: sets, books, rows that
-- are in their place, and what belongs to these. A lane that no book names is put where obliterate finds it.
-- KEYS[1] -> meta
-- ARGV[1] -> force or ''   then the names of keys, without their base
-- returns how many; EMQSTATE not paused; EMQSTATE active jobs present
-- @include raze
-- @include razable
-- @include mind
local refused = not_razable(ARGV[1])
if refused then return refused end
rightly_typed()
local reached = { meta = true, ring = true, paused = true }
for _, names in ipairs({ PLACES, REGISTRIES, LANE_BOOKS, HINTS }) do
  for _, name in ipairs(names) do reached[name] = true end
end
local function placed(id, group)
  for _, name in ipairs(PLACES) do
    if redis.call('ZSCORE', base .. name, id) then return true end
  end
  return group and mind('ZSCORE', lane_of(group), id)
end
-- stays(name): whether a key is obliterate's to take.
local function stays(name)
  if reached[name] then return true end
  local lane = string.match(name, '^g:(.+):pending$')
  if lane then
    keep_lane(lane)
    ring_fix(lane)
    return true
  end
  local kind, rest = string.match(name, '^([^:]+):(.*)$')
  if kind == 'repeat' or kind == 'cron' then return redis.call('ZSCORE', base .. kind, rest) end
  if kind == 'de' then
    local id = mind('GET', base .. name)
    local row = id and fields(id, 'dedup', 'group')
    return row and row[1] == rest and placed(id, row[2])
  end
  if kind ~= 'job' then return false end
  local id = string.match(rest, '^[^:]*')
  local row = fields(id, 'state', 'group')
  if not row then return false end
  if placed(id, row[2]) then return true end
  raze(id)
  return false
end
local gone = 0
for i = 2, #ARGV do
  if not stays(ARGV[i]) then
    redis.call('UNLINK', base .. ARGV[i])
    gone = gone + 1
  end
end
return gone
