-- base: the prefix of every key of this queue, taken from the first key, which pins the slot (protocol §5).
-- SELF stands for the verb that includes this: its native twin's name, or that of its file.
local base = string.match(KEYS[1] or '', '^(emq:{[^}]+}:)')
if not base then return redis.error_reply('ERR SELF first key must begin with emq:{queue}:') end
