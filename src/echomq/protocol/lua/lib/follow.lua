-- follow(id, payload): a job that follows another one is admitted flat in the step that settles that one, and wakes; one
-- whose id is known already is left alone (docs/additions.md). not_to_follow(first, last): the refusal of pairs of id and
-- payload among the arguments that name no job, else nil; an empty id means none. To be asked before the first write.
-- @include kind
-- @include admit
-- @include sound
-- @include wake
local function not_to_follow(first, last)
  for i = first, last, 2 do
    if ARGV[i] and ARGV[i] ~= '' then
      local refused = not_a_job(ARGV[i])
      if refused then return refused end
      sound('pending')
    end
  end
end
local function follow(id, payload)
  if not id or id == '' or known(id) then return end
  admit(id, payload)
  wake(1)
end
