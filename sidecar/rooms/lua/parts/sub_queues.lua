-- @include "rooms/parts/order"
-- The room's sub-queues. Each is a band of orders in `waiting`.

-- Returns how many visitors wait in each sub-queue; they are counted once in a script.
local function sub_queue_lengths()
  if cache.lengths then return cache.lengths end
  flush()
  local lengths = {}
  cache.lengths = lengths
  for line = 1, #lines do
    local low, high = bounds(line)
    lengths[line] = redis_call('ZCOUNT', WAITING, line == 1 and int(bottom(FRONT - 1)) or int(low),
      line == #lines and '+inf' or '(' .. int(high))
  end
  return lengths
end

-- Returns how many waiting visitors have a drawn place; they are counted once in a script, after
-- the calls.
local function drawn_length()
  cache.drawn = cache.drawn or count_drawn()
  return cache.drawn
end

-- Returns how many visitors are called before a visitor who has `ahead` people ahead in the
-- sub-queue and `rank` people ahead in all sub-queues.
local function calls_before(line, ahead, rank)
  if not is_weighted then return rank end
  local calls = ahead + drawn_length()
  for other, length in ipairs(sub_queue_lengths()) do
    if other ~= line then
      calls = calls + math.min(length, ahead * lines[other].weight / lines[line].weight)
    end
  end
  return calls
end

-- Returns how many visitors wait before the first of a sub-queue. `line`: nil in a room without
-- sub-queues.
local function ahead_of_sub_queue(line)
  if not line then return 0 end
  return line > 1 and before(WAITING, bounds(line)) or count_drawn()
end
