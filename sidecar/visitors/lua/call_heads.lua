-- @include "visitors/members"
-- Calls the next members of a queue, in rooms and of leases. Jobs have their own way: a target's
-- rate or a full worker stops the calls in the middle, so only called members are taken out.

-- Takes heads out of a queue until `free` members are called or `most` were taken.
--   line   the queue: the names of its keys `queue` and `due`, and optionally `pop`, which replaces
--          queue.pop_heads() where the smallest order is not always next
--   call   a function of the queue, a member, its score in `due` (0: Redis evicted it) and its
--          order as text. Returns whether it called the member. One whose heartbeat is overdue is
--          not called, and dropped.
-- Returns how many members left the queue.
function queue.call_heads(line, free, most, call)
  local popped = 0
  -- Take as many at a time as can be called if no heartbeat is overdue.
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
