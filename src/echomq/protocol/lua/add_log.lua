#!lua
-- add log: one line, the newest `keep` kept (protocol §7).
-- KEYS[1] -> row     KEYS[2] -> row:logs
-- ARGV[1] -> line    ARGV[2] -> keep, or ''
-- returns lines kept; -1 gone; ERR keep
-- @include base
-- @include natural
local keep, logs = natural(ARGV[2]), KEYS[1] .. ':logs'
if ARGV[2] ~= '' and not keep then return redis.error_reply('ERR add log keep must be a non-negative integer') end
if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
local kept = redis.call('RPUSH', logs, ARGV[1])
if keep and kept > keep then
  kept = keep
  redis.call('LTRIM', logs, -kept, -1)
end
return kept
