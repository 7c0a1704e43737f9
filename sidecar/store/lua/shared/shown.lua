-- @include "shared/order"
-- Where somebody is told to stand, and how many are called before them: the same thing, unless
-- the room has several lines or shows places by arrival.
-- `arrivals` holds: arrival, less the band of the line.
local function shown_score(arrival, order)
  local line = line_of(order)
  return line and arrival + bounds(line) or arrival
end

-- Takes a place in both sets.
local function put_in_line(visitor, order, arrival)
  put(WAITING, int(order), visitor)
  if is_by_arrival and not is_drawn(order) then
    put(ARRIVALS, int(shown_score(arrival, order)), visitor)
  end
end

-- After they were taken out of `waiting`.
local function forget_arrivals(visitors)
  if is_by_arrival and #visitors > 0 then redis_call('ZREM', ARRIVALS, unpack(visitors)) end
end

-- How many wait in each line. Counted once in a script, by whoever asks first.
local lengths
local function line_lengths()
  if lengths then return lengths end
  flush()
  lengths = {}
  for line = 1, #lines do
    local low, high = bounds(line)
    lengths[line] = redis_call('ZCOUNT', WAITING, line == 1 and int(bottom(FRONT - 1)) or int(low),
      line == #lines and '+inf' or '(' .. int(high))
  end
  return lengths
end

-- How many are called before somebody with so many ahead in their line, and so many in all.
local function calls_before(line, ahead, rank)
  if not is_weighted then return rank end
  local calls = ahead + count_drawn()
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

-- For somebody with that rank in `waiting`: {ahead, calls, line or -1, length of the line}; the
-- first two alone where the other two say nothing.
local function shown(visitor, order, rank, joined)
  if #lines == 0 and not is_by_arrival or is_drawn(order) then return {rank, rank} end
  flush()
  local line = line_of(order)
  local ahead = rank - ahead_of_line(line)
  local calls = line and calls_before(line, ahead, rank) or rank
  if is_by_arrival then
    ahead = redis_call('ZRANK', ARRIVALS, visitor)
    if not ahead then -- since then the setting was changed, or the store emptied
      redis_call('ZADD', ARRIVALS, int(shown_score((joined or now) * 1000, order)), visitor)
      ahead = redis_call('ZRANK', ARRIVALS, visitor)
    end
    if line then
      ahead = ahead - (line > 1 and before(ARRIVALS, bounds(line)) or 0)
    else
      ahead = ahead + count_drawn()
    end
  end
  return {ahead, calls, line and line - 1 or -1, line and line_lengths()[line] or -1}
end
