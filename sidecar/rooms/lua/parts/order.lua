-- @include "visitors/arrival"
-- The orders of a room (visitors/arrival). band: the class's priority, or that of its sub-queue;
-- the last sub-queue has 0. A pre-queue's places are drawn into the FRONT band.
local DRAWS, FRONT = 2 ^ 50, 4

local function arrive_now()
  stats.last_order = arrive_after(stats.last_order, now * 1000)
  return stats.last_order
end

local function band_of(class)
  local rules = classes[class]
  if not rules then return 0 end
  for n, line in ipairs(lines) do
    if line.name == rules.line then return #lines - n end
  end
  return rules.priority or 0
end

-- The class's number by the order of names, which is the same for all replicas.
local function number_of(class)
  local number = 1
  for name in pairs(classes) do
    if name < class then number = number + 1 end
  end
  return number
end

-- The head start of a class, µs.
local function head_start_us(class)
  return is_random and 0 or whole_ms(classes[class].head_start or 0) * 1000
end

-- Returns the order of a visitor of a class ('' is none).
local function order_of(arrival, class)
  if not classes[class] then return arrival end
  return order_by(arrival, head_start_us(class), band_of(class), number_of(class))
end

-- The lowest order of a band.
local function bottom(band)
  return -band * BAND
end
local function is_drawn(order)
  return order < bottom(FRONT - 1)
end
local function before(key, score)
  return redis_call('ZCOUNT', key, '-inf', '(' .. int(score))
end
local function count_drawn()
  return before(WAITING, bottom(FRONT - 1))
end
-- Returns a sub-queue's lowest order, and the one after its highest. `line`: its number, from 1 on.
local function bounds(line)
  return bottom(#lines - line), bottom(#lines - line - 1)
end
-- Returns the number of the sub-queue of an order; nil if there are none, or the place was drawn.
local function line_of(order)
  if #lines == 0 or is_drawn(order) then return nil end
  return math.min(#lines, math.max(1, #lines + math.floor(order / BAND)))
end
