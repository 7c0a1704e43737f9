-- @include "rooms/parts/order"
-- The room's lines, each a band of `waiting`.

-- How many wait in each sub-queue. Counted once in a script, at the first use.
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

-- How many were drawn; counted once in a script too, after the call.
local function drawn_people()
  found.drawn = found.drawn or count_drawn()
  return found.drawn
end

-- How many are called before somebody with so many ahead in their line, and so many in all.
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

-- How many stand in front of a line's first; nil is the room's only one.
local function ahead_of_line(line)
  if not line then return 0 end
  return line > 1 and before(WAITING, bounds(line)) or count_drawn()
end
