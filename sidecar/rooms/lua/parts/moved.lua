-- @include "rooms/parts/position"
-- Changes the order of a waiting visitor. The sorted set `moved` has the order that each visitor
-- had before the first move by an operator.

-- Returns a waiting visitor's position, from 1, in the visitor's sub-queue if the room has any.
local function position_of(visitor)
  local order = tonumber(redis_call('ZSCORE', WAITING, visitor))
  return redis_call('ZRANK', WAITING, visitor) + 1 - count_ahead_of_sub_queue(sub_queue_of(order))
end

-- Gives a visitor another order, and returns the new position. `action`: 'move', 'grade' (the class
-- changes) or 'back' (all moves are undone). Without an operator ('') nothing is logged.
local function change_order(order, visitor, operator, action, old_order, reason)
  for _, other in ipairs(redis_call('ZRANGE', MOVED, 0, 49)) do -- at most 50 in a call, to be fast
    if not redis_call('ZSCORE', WAITING, other) then redis_call('ZREM', MOVED, other) end
  end
  local old_position = position_of(visitor)
  if action == 'back' then
    redis_call('ZREM', MOVED, visitor)
  elseif operator ~= '' then
    redis_call('ZADD', MOVED, 'NX', int(old_order), visitor)
  else
    redis_call('ZADD', MOVED, 'XX', int(order), visitor)
  end
  if is_by_arrival and sub_queue_of(order) ~= sub_queue_of(old_order) and not is_drawn(order) then
    -- The visitor arrives last in the other sub-queue, so that nobody's shown position there grows.
    store_arrival(visitor, next_arrival(), order)
    flush()
  end
  redis_call('ZADD', WAITING, int(order), visitor)
  local new_position = position_of(visitor)
  local detail = int(old_position) .. ' to ' .. int(new_position)
  if reason ~= '' then detail = detail .. ': ' .. reason end
  log_action(operator, action, visitor, detail, 'order', int(order))
  return new_position
end
