#!lua flags=allow-oom
-- obliterate rest: keys of a paused queue that none of its sets or books leads to, found by a walk of the server's
-- keys: held parents whose children lie elsewhere, guards, kept results, orphan deduplication keys (protocol §7).
-- KEYS[1] -> meta
-- ARGV[1] -> force or ''   then the names of keys, without their base
-- returns how many; EMQSTATE not paused; EMQSTATE active jobs present
-- @include base
-- @include razable
local refused = not_razable(ARGV[1])
if refused then return refused end
local gone = 0
for i = 2, #ARGV do gone = gone + redis.call('UNLINK', base .. ARGV[i]) end
return gone
