#!lua flags=allow-oom
-- lane claim: the head of the next lane that can be served, in hand (protocol §6). With a weighted turn the lane
-- gives min(weight, depth, limit - in hand) jobs under one deadline.
-- KEYS[1] -> ring     KEYS[2] -> active
-- ARGV[1] -> base     ARGV[2] -> lease ms   ARGV[3] -> weighted, or one job
-- returns the claim's reply of lib/claimed; why is '' when a lane was served, else empty, paused, ceiling or rate
-- @include lease
-- @include hand
-- @include gate
-- @include claimed
-- @include failed
local refused
deadline, refused = lease_until('lane claim', ARGV[2])
if not deadline then return refused end
local room, why = gate(100000)
local function share(group)
  local weight = 1
  if ARGV[3] == 'weighted' then weight = tonumber(mind('HGET', base .. 'gweight', group) or nil) or 1 end
  return math.min(math.max(weight, 1), room)
end
if room > 0 then
  why = ''
  sound('active', 'dead')
  local served, found = pcall(from_lanes, share)
  put_back()
  if not served and taken == 0 then return failed(found) end
  if nothing_but_barred() then return failed(barred) end
  if taken == 0 then why = 'empty' end
  spend(taken)
end
return claimed(why)
