#!lua
-- enqueue: admits one flat job (protocol §5). Twin: EMQ.ENQUEUE.
-- KEYS[1] -> row   KEYS[2] -> pending
-- ARGV[1] -> id    ARGV[2] -> payload
-- returns 1; 0 when the id has a row or a kept result (nothing written); ERR arity, EMQKIND
-- @include shape
local wrong = misshapen('EMQ.ENQUEUE', 2, 2)
if wrong then return wrong end
-- @include kind
-- @include admit
-- @include wake
local refused = not_a_job(ARGV[1])
if refused then return refused end
if known(ARGV[1]) then return 0 end
admit(ARGV[1], ARGV[2])
wake(1)
return 1
