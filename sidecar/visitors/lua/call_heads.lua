-- @include "visitors/members"
-- Calls the next members of a queue, for rooms and leases. Jobs do not use this: a target's rate or
-- a full worker may stop the calls at any member, so jobs leave the queue only when called.

-- Pops members from the head of a queue until `free` of them are called or `most` are popped.
--   line   the queue: the names of its keys `queue` and `due`, and optionally `pop`, which replaces
--          queue.pop_heads() if the smallest order is not always next
--   call   a function of the queue, a member, its score in `due` (0: Redis evicted it) and its
--          order as a string. Returns true if it called the member. If the member's heartbeat is
--          overdue, it drops the member and returns false.
-- Returns how many members left the queue.
function queue.call_heads(line, free, most, call)
  local popped = 0
  -- Pop as many at a time as can be called if no heartbeat is overdue.
  while free > 0 and popped < most do
    local heads, orders, requested = (line.pop or queue.pop_heads)(
      line.queue, math.min(free, most - popped))
    if #heads == 0 then break end
    popped = popped + #heads
    local dues = queue.pop_scores(line.due, heads)
    for i, head in ipairs(heads) do
      if call(line, head, tonumber(dues[i] or 0), orders[i]) then free = free - 1 end
    end
    if #heads < requested then break end -- the queue is empty
  end
  return popped
end
