-- @include "rooms/parts/sub_queues"
-- Decodes an order into the visitor's class and arrival (visitors/arrival).

local arrival_of, make_origin_fields
do
-- Returns the name of the class in an order; '' if it has none, or if the class was removed.
local function class_of(order)
  for name in pairs(classes) do
    if number_of(name) == order % STEP then return name end
  end
  return ''
end

-- Returns the arrival in an order, which must not be the result of a move by an operator.
function arrival_of(order)
  local arrival = order - lowest_order(math.min(FRONT, math.max(0, -math.floor(order / BAND))))
  local class = class_of(order)
  if class ~= '' then
    arrival = arrival + get_head_start_us(class) - number_of(class)
  end
  return math.floor(arrival / STEP) * STEP
end

-- Returns two values:
--   the class; '' if the visitor has none
--   when the visitor joined, ms; -1 if the order is random
-- `order_before_moves`: the order before an operator moved the visitor, or false.
local function decode_origin(order, order_before_moves)
  local original_order = order_before_moves and order_before_moves + 0 or order
  if is_drawn(original_order) then return '', -1 end
  local class, arrival = class_of(original_order), arrival_of(original_order)
  if order_before_moves then -- if the operator changed the class, `order` is that of the new class
    if arrival == order then class = '' end
    for name in pairs(classes) do
      if order_of(arrival, name) == order then class = name end
    end
  end
  return class, is_random and -1 or math.floor(arrival / 1000)
end

-- Returns the four values that describe a place in a reply:
--   the order
--   the name of the sub-queue; '' if the place is in none
--   the class; '' if the visitor has none
--   when the visitor joined, ms; -1 if the order is random
function make_origin_fields(order, order_before_moves)
  local line = sub_queue_of(order)
  return order, line and lines[line].name or '', decode_origin(order, order_before_moves)
end
end
