-- @include "rooms/parts/order"
-- The room's lines, each a band of `waiting`.

-- Returns how many wait in each sub-queue, counted once in a script.
local function line_lengths()
  if found.lengths then return found.lengths end
  flush()
  local lengths = {}
  found.lengths = lengths
  for line = 1, #lines do
    local low, high = bounds(line)
    lengths[line] = redis_call('ZCOUNT', WAITING, line == 1 and int(bottom(FRONT - 1)) or int(low),
      line == #lines and '+inf' or '(' .. int(high))
  end
  return lengths
end

-- Returns how many places were drawn, counted once in a script, after the call.
local function drawn_people()
  found.drawn = found.drawn or count_drawn()
  return found.drawn
end

-- Returns how many are called before a visitor with `ahead` people in their sub-queue and `rank` in
-- all before them.
local function calls_before(line, ahead, rank)
  if not is_weighted then return rank end
  local calls = ahead + drawn_people()
  for other, length in ipairs(line_lengths()) do
    if other ~= line then
      calls = calls + math.min(length, ahead * lines[other].weight / lines[line].weight)
    end
  end
  return calls
end

-- Returns how many stand before the first of a sub-queue; nil is a room without sub-queues.
local function ahead_of_line(line)
  if not line then return 0 end
  return line > 1 and before(WAITING, bounds(line)) or count_drawn()
end
