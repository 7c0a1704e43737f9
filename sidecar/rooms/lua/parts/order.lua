-- @include "visitors/arrival"
-- The orders of a room (visitors/arrival). An order's band is the priority of the class, or of its
-- sub-queue; the last sub-queue has band 0. Places of a pre-queue are drawn into the band FRONT.
local DRAWS, FRONT = 2 ^ 50, 4

-- Returns the arrival of a visitor who joins now.
local function next_arrival()
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

-- Returns a class's number in the alphabetical order of names, which is the same for all replicas.
local function number_of(class)
  local number = 1
  for name in pairs(classes) do
    if name < class then number = number + 1 end
  end
  return number
end

-- Returns the head start of a class, µs.
local function head_start_us(class)
  return is_random and 0 or whole_ms(classes[class].head_start or 0) * 1000
end

-- Returns the order of a visitor of a class; '' means no class.
local function order_of(arrival, class)
  if not classes[class] then return arrival end
  return order_by(arrival, head_start_us(class), band_of(class), number_of(class))
end

-- Returns the lowest order of a band.
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
-- Returns the lowest order of a sub-queue, and the order after its highest. `line`: the sub-queue's
-- number, from 1.
local function bounds(line)
  return bottom(#lines - line), bottom(#lines - line - 1)
end
-- Returns the number of the sub-queue that an order belongs to; nil if the room has no sub-queues,
-- or if the place was drawn.
local function sub_queue_of(order)
  if #lines == 0 or is_drawn(order) then return nil end
  return math.min(#lines, math.max(1, #lines + math.floor(order / BAND)))
end
