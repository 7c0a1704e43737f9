-- @include "visitors/members"
-- Calls who is next, in rooms and of leases. A target of jobs differs: its rate or a full worker
-- stops the calls in the middle, so it reads the heads and takes out only those that it has called.

-- Takes heads out of a queue until so many (`free`) are called or so many (`most`) were taken.
--   line   the names of its keys, `queue` and `due`; `pop`, where not simply the smallest order is
--          next: returns what queue.pop_heads() does
--   call   given those keys, a member, its score in `due` (0: a store that evicts took it) and its
--          order as text; whether it was called. One that was not, for its heartbeat is overdue, is
--          dropped, and nobody waits for it.
-- Returns how many left the queue.
function queue.call_heads(line, free, most, call)
  local popped = 0
  -- As many at a time as would all be called, if none of them is silent.
  while free > 0 and popped < most do
    local heads, orders, tried = (line.pop or queue.pop_heads)(
      line.queue, math.min(free, most - popped))
    if #heads == 0 then break end
    popped = popped + #heads
    local dues = queue.pop_scores(line.due, heads)
    for i, head in ipairs(heads) do
      if call(line, head, tonumber(dues[i] or 0), orders[i]) then free = free - 1 end
    end
    if #heads < tried then break end -- nobody is left
  end
  return popped
end
