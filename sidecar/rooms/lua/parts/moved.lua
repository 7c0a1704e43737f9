-- @include "rooms/parts/position"
-- Changes a visitor's order for an operator. `moved` keeps the order that the visitor had before.

-- Returns a visitor's position in their sub-queue, from 1 on.
local function position_of(visitor)
  local order = tonumber(redis_call('ZSCORE', WAITING, visitor))
  return redis_call('ZRANK', WAITING, visitor) + 1 - ahead_of_line(line_of(order))
end

-- Gives a visitor another order and returns the new position. `why` is the operator's reason.
-- LOOKED_THROUGH: how many members of `moved` it checks, to remove those who no longer wait.
local LOOKED_THROUGH = 50
local function put_at(order, visitor, by, what, from, why)
  for _, other in ipairs(redis_call('ZRANGE', MOVED, 0, LOOKED_THROUGH - 1)) do
    if not redis_call('ZSCORE', WAITING, other) then redis_call('ZREM', MOVED, other) end
  end
  local was = position_of(visitor)
  if what == 'back' then
    redis_call('ZREM', MOVED, visitor)
  elseif by ~= '' then
    redis_call('ZADD', MOVED, 'NX', int(from), visitor)
  else
    redis_call('ZADD', MOVED, 'XX', int(order), visitor)
  end
  if is_by_arrival and line_of(order) ~= line_of(from) and not is_drawn(order) then
    -- As the last arrival of the other sub-queue, so that nobody's shown position there grows.
    note_arrival(visitor, arrive_now(), order)
    flush()
  end
  redis_call('ZADD', WAITING, int(order), visitor)
  local now_at = position_of(visitor)
  note(by, what, visitor, int(was) .. ' to ' .. int(now_at) .. (why ~= '' and ': ' .. why or ''),
    'order', int(order))
  return now_at
end
