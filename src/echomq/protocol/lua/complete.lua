#!lua flags=allow-oom
-- complete: retires one job (protocol §5).
-- KEYS[1] -> active   KEYS[2] -> row
-- ARGV[1] -> id       ARGV[2] -> token   ARGV[3] -> base
-- ARGV[4] -> result to keep, optional    ARGV[5] -> its ttl in ms, 0 keeps none
-- ARGV[6] -> id of a job that follows    ARGV[7] -> its payload; both optional, admitted if this one is retired
-- returns 1; 0 gone; 2 retired with a signal left in the outbox, where a job follows; EMQSTALE complete token mismatch;
--   EMQSTATE complete not active; ERR ttl; EMQKIND for the one that follows
-- @include natural
-- @include retire
-- @include follow
local ttl = ARGV[5] or '0'
if not natural(ttl) then return redis.error_reply('ERR complete ttl must be a non-negative integer') end
local refused = not_to_follow(6, 6)
if refused then return refused end
local answer = retire({ ARGV[1] }, { ARGV[2] }, { ARGV[4] or '' }, { ttl })[1]
if type(answer) == 'string' then return redis.error_reply(answer) end
if not ARGV[6] then return math.min(answer, 1) end
if answer > 0 then follow(ARGV[6], ARGV[7]) end
return answer
