#!lua
-- pay: what is owed for a death leaves the list, and the job that follows is admitted; or neither, when another one
-- was first (protocol §5, ours; docs/additions.md).
-- KEYS[1] -> owed   KEYS[2] -> pending
-- ARGV[1] -> the entry   ARGV[2] -> id of the job that follows   ARGV[3] -> its payload; both optional: nothing follows
-- returns 1; 0 when another one was first; EMQKIND
-- @include follow
local refused = not_to_follow(2, 2)
if refused then return refused end
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then return 0 end
follow(ARGV[2], ARGV[3])
return 1
