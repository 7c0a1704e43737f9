-- @include "rooms/parts/sub_queues"
-- What an order says: the class that it was given for, and when its visitor arrived.

local arrival_of, describe
do
-- The class's name; '' where there is none (any more).
local function class_of(order)
  for name in pairs(classes) do
    if number_of(name) == order % STEP then return name end
  end
  return ''
end

-- The arrival that an order was made of, which nobody moved.
function arrival_of(order)
  local arrival = order - bottom(math.min(FRONT, math.max(0, -math.floor(order / BAND))))
  local class = class_of(order)
  if class ~= '' then
    arrival = arrival + head_start_us(class) - number_of(class)
  end
  return math.floor(arrival / STEP) * STEP
end

-- Class ('' is none) and when the visitor joined (ms; -1 where places are drawn). `moved`: the
-- order before an operator moved the visitor, false where nobody did.
local function origin_of(order, moved)
  local by_rules = moved and moved + 0 or order
  if is_drawn(by_rules) then return '', -1 end
  local class, arrival = class_of(by_rules), arrival_of(by_rules)
  if moved then -- whom an operator gave a class stands where that class would
    if arrival == order then class = '' end
    for name in pairs(classes) do
      if order_of(arrival, name) == order then class = name end
    end
  end
  return class, is_random and -1 or math.floor(arrival / 1000)
end

-- The end of a row of a reply: order, name of the sub-queue ('' is none), class, joined.
function describe(order, moved)
  local line = line_of(order)
  return order, line and lines[line].name or '', origin_of(order, moved)
end
end
