-- @include "rooms/parts/order"
-- Counts visitors in the room's sub-queues. A sub-queue is a range of orders in `waiting`; `line`
-- is its number, from 1.

-- Returns a list of the lengths of all sub-queues, which are counted once in a script.
local function get_sub_queue_lengths()
  if cache.lengths then return cache.lengths end
  flush()
  local lengths = {}
  cache.lengths = lengths
  for line = 1, #lines do
    local low, high = order_range(line)
    if line == 1 then low = lowest_order(FRONT - 1) end
    lengths[line] = redis_call('ZCOUNT', WAITING, int(low),
      line == #lines and '+inf' or '(' .. int(high))
  end
  return lengths
end

-- Returns how many waiting visitors have a drawn place. They are counted once in a script, after
-- call_next().
local function get_drawn_length()
  cache.drawn = cache.drawn or count_drawn_places()
  return cache.drawn
end

-- Returns how many visitors are called before a visitor who has `ahead` visitors ahead in the
-- sub-queue `line`, and `rank` visitors ahead in all sub-queues.
local function count_calls_before(line, ahead, rank)
  if not is_weighted then return rank end
  local calls = ahead + get_drawn_length()
  for other, length in ipairs(get_sub_queue_lengths()) do
    if other ~= line then
      calls = calls + math.min(length, ahead * lines[other].weight / lines[line].weight)
    end
  end
  return calls
end

-- Returns how many waiting visitors have a smaller order than all visitors of a sub-queue. `line`:
-- nil in a room without sub-queues.
local function count_ahead_of_sub_queue(line)
  if not line then return 0 end
  return line > 1 and count_below(WAITING, order_range(line)) or count_drawn_places()
end
