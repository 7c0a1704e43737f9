-- @include "visitors/arrival"
-- Computes the orders of a room's visitors by the formula in visitors/arrival. The band of an order
-- is the priority of the visitor's class or, in a room with sub-queues, the rank of the sub-queue
-- (the last one has band 0). The drawn places of a pre-queue are in the band FRONT.
local DRAWS, FRONT = 2 ^ 50, 4

-- Returns the arrival of a visitor who joins now.
local function next_arrival()
  stats.last_order = next_arrival_after(stats.last_order, now * 1000)
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

-- Returns the number of a class, which is the same for all replicas: its index in the alphabetical
-- order of all classes, from 1.
local function number_of(class)
  local number = 1
  for name in pairs(classes) do
    if name < class then number = number + 1 end
  end
  return number
end

-- Returns the head start of a class, in µs.
local function get_head_start_us(class)
  return is_random and 0 or to_ms(classes[class].head_start or 0) * 1000
end

-- Returns the order of a visitor who arrived at `arrival`. `class`: '' if the visitor has none.
local function order_of(arrival, class)
  if not classes[class] then return arrival end
  return compose_order(arrival, get_head_start_us(class), band_of(class), number_of(class))
end

-- Returns the lowest order of a band.
local function lowest_order(band)
  return -band * BAND
end
local function is_drawn(order)
  return order < lowest_order(FRONT - 1)
end
-- Returns how many members of a sorted set have a smaller score.
local function count_below(key, score)
  return redis_call('ZCOUNT', key, '-inf', '(' .. int(score))
end
-- Returns how many waiting visitors have a drawn place.
local function count_drawn_places()
  return count_below(WAITING, lowest_order(FRONT - 1))
end
-- Returns the lowest order of a sub-queue, and the first order beyond it. `line`: the number of the
-- sub-queue, from 1.
local function order_range(line)
  return lowest_order(#lines - line), lowest_order(#lines - line - 1)
end
-- Returns the number of the sub-queue that an order belongs to, from 1; nil if the room has no
-- sub-queues, or if the place was drawn.
local function sub_queue_of(order)
  if #lines == 0 or is_drawn(order) then return nil end
  return math.min(#lines, math.max(1, #lines + math.floor(order / BAND)))
end
