#!lua flags=allow-oom
-- cron due: what is due in both registries, oldest first, with the records (protocol §9, ours). A name without a record
-- is swept.
-- KEYS[1] -> repeat   KEYS[2] -> cron
-- ARGV[1] -> now ms   ARGV[2] -> limit, of each
-- returns {name, score, every ms, template ...} as `due` does, {{name, score, stamp, field, value ...} ...}
-- @include dues
-- @include entry
local entries = {}
dues(base .. 'cron', ARGV[1], ARGV[2], function(name)
  local found = entry('cron', name)
  table.insert(found, 1, name)
  entries[#entries + 1] = found
end)
return { plain_dues(KEYS[1], ARGV[1], ARGV[2]), entries }
