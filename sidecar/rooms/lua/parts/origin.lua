-- @include "rooms/parts/sub_queues"
-- Decodes an order: the visitor's class, and when the visitor arrived.

local arrival_of, describe
do
-- Returns the name of an order's class; '' if it has none, or if that class was removed.
local function class_of(order)
  for name in pairs(classes) do
    if number_of(name) == order % STEP then return name end
  end
  return ''
end

-- Returns the arrival in an order. The order must not have been moved by an operator.
function arrival_of(order)
  local arrival = order - bottom(math.min(FRONT, math.max(0, -math.floor(order / BAND))))
  local class = class_of(order)
  if class ~= '' then
    arrival = arrival + head_start_us(class) - number_of(class)
  end
  return math.floor(arrival / STEP) * STEP
end

-- Returns the class or '', and when the visitor joined (ms; -1 if the order is random). `moved` is
-- the order before an operator moved the visitor, or false.
local function origin_of(order, moved)
  local original_order = moved and moved + 0 or order
  if is_drawn(original_order) then return '', -1 end
  local class, arrival = class_of(original_order), arrival_of(original_order)
  if moved then -- if an operator changed the class, the order is the one of the new class
    if arrival == order then class = '' end
    for name in pairs(classes) do
      if order_of(arrival, name) == order then class = name end
    end
  end
  return class, is_random and -1 or math.floor(arrival / 1000)
end

-- Returns the end of a row in a reply: order, name of the sub-queue or '', class, joined.
function describe(order, moved)
  local line = sub_queue_of(order)
  return order, line and lines[line].name or '', origin_of(order, moved)
end
end
