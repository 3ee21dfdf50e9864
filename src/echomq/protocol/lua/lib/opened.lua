-- wake_lane(group): tokens for what a lane that has just opened can give (protocol §12.2).
-- @include lane
-- @include wake
local function wake_lane(group) wake(lane_served(group)) end
