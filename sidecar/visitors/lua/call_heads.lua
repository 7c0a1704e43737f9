-- @include "visitors/members"
-- Calls the next members of the queue of a room or a lease. Jobs have a loop of their own, because
-- a target's rate or a full worker may stop the calls at any job, so a job must stay in the queue
-- until it is called.

-- Pops members from the head of a queue until `free` of them are called or `max_count` are popped.
--   line   a table that describes the queue: the names of its keys as `queue` and `due`, and as
--          `pop` optionally a function to use instead of queue.pop_heads()
--   call   a function that gets `line`, a member, its score in `due` (0: Redis evicted it) and its
--          order as a string. Returns true if it called the member, false if it dropped the member
--          because the heartbeat is overdue.
-- Returns how many members left the queue.
function queue.call_heads(line, free, max_count, call)
  local popped = 0
  -- Pop as many members at a time as can be called, because usually no heartbeat is overdue.
  while free > 0 and popped < max_count do
    local heads, orders, requested = (line.pop or queue.pop_heads)(
      line.queue, math.min(free, max_count - popped))
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
