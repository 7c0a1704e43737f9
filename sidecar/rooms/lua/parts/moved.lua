-- @include "rooms/parts/position"
-- Changes a visitor's order for an operator. `moved` keeps the order that the visitor had before.

-- Returns a visitor's position in their sub-queue, from 1 on.
local function position_of(visitor)
  local order = tonumber(redis_call('ZSCORE', WAITING, visitor))
  return redis_call('ZRANK', WAITING, visitor) + 1 - ahead_of_sub_queue(sub_queue_of(order))
end

-- Gives a visitor another order and returns the new position. `why` is the operator's reason.
local function put_at(order, visitor, by, what, from, why)
  for _, other in ipairs(redis_call('ZRANGE', MOVED, 0, 49)) do -- only some, to be fast
    if not redis_call('ZSCORE', WAITING, other) then redis_call('ZREM', MOVED, other) end
  end
  local old_position = position_of(visitor)
  if what == 'back' then
    redis_call('ZREM', MOVED, visitor)
  elseif by ~= '' then
    redis_call('ZADD', MOVED, 'NX', int(from), visitor)
  else
    redis_call('ZADD', MOVED, 'XX', int(order), visitor)
  end
  if is_by_arrival and sub_queue_of(order) ~= sub_queue_of(from) and not is_drawn(order) then
    -- As the last arrival of the other sub-queue, so that nobody's shown position there grows.
    store_arrival(visitor, next_arrival(), order)
    flush()
  end
  redis_call('ZADD', WAITING, int(order), visitor)
  local new_position = position_of(visitor)
  local detail = int(old_position) .. ' to ' .. int(new_position)
  log_action(by, what, visitor, why == '' and detail or detail .. ': ' .. why, 'order', int(order))
  return new_position
end
