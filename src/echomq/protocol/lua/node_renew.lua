#!lua flags=allow-oom
-- node_renew: renews, or gives back, the lease on a node of the minter (protocol §1).
-- KEYS[1] -> {emq}:node:<n>
-- ARGV[1] -> the holder's value   ARGV[2] -> lease in ms, 0 gives the node back
-- returns 1; 0 when the lease is not the holder's any more (nothing written)
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
