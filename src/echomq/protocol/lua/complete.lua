#!lua flags=allow-oom
-- complete: retires one job (protocol §5).
-- KEYS[1] -> active   KEYS[2] -> row
-- ARGV[1] -> id       ARGV[2] -> token   ARGV[3] -> base
-- ARGV[4] -> result to keep, optional    ARGV[5] -> its ttl in ms, 0 keeps none
-- returns 1; 0 gone; EMQSTALE complete token mismatch; EMQSTATE complete not active; ERR ttl
-- @include natural
-- @include retire
local ttl = natural(ARGV[5] or '0')
if not ttl then return redis.error_reply('ERR complete ttl must be a non-negative integer') end
local answer = retire({ ARGV[1] }, { ARGV[2] }, { ARGV[4] or '' }, { ttl })[1]
if type(answer) == 'string' then return redis.error_reply(answer) end
return math.min(answer, 1)
