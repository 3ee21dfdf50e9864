-- stranger(id, parent, queue, children): why the row that a flow's node finds under its id is not that node's, or nil
-- (protocol §8, ours): it is another job, whose end would never reach this parent, it has never waited for children, or
-- it waits for another number of them.
-- `parent` is '' for a root, `queue` is '' for a parent in this queue.
-- @include rows
local OWN = string.sub(base, 6, -3)
-- child_of(row, parent, queue): whether the fields `parent` and `parent_queue` of a row name this parent.
local function child_of(row, parent, queue)
  return row[1] == parent and (row[2] or OWN) == (queue == '' and OWN or queue)
end
local function stranger(id, parent, queue, children)
  local row = row_of(id)
  if redis.call('EXISTS', row) == 0 then return nil end
  local link = fields(id, 'parent', 'parent_queue')
  if not link or (parent ~= '' and not child_of(link, parent, queue)) then return 'not of this flow' end
  if children < 1 then return nil end
  local books = redis.call('EXISTS', row .. ':dependencies', row .. ':processed', row .. ':failed', row .. ':unsuccessful')
  if books == 0 then return 'not a parent' end
  local left = tonumber(redis.call('GET', row .. ':dependencies') or nil)
  local counted = redis.call('HLEN', row .. ':processed') + redis.call('HLEN', row .. ':unsuccessful')
  if left and left + counted ~= children then return 'has other children' end
end
