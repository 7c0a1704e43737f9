-- Moves a waiting visitor to a position (in the visitor's sub-queue, if the room has sub-queues),
-- or back to the place that the visitor had before the first move. If no order is free at the
-- position, the visitor gets the next free order before it.
-- ARGV    6 visitor
--         7 position, from 1 (beyond the end: the end), or 0 to move the visitor back
--         8 the operator
--         9 the operator's reason, or ''
-- RETURNS {now, the new position or a code}. The codes:
--         0: the visitor is not waiting
--         -1: no order is free nearby
--         -2: the pre-queue is not drawn yet
--         -3: the visitor was never moved
-- EVENTS  operator, called, expired
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"
-- @include "rooms/parts/moved"

-- Returns the order of the visitor at a place of the queue, from 1. The visitor to move, whose rank
-- is `own_rank`, is not counted.
local function read_order_at(place, own_rank)
  if own_rank and place > own_rank then place = place + 1 end
  local row = redis_call('ZRANGE', WAITING, place - 1, place - 1, 'WITHSCORES')
  return tonumber(row[2])
end

-- Returns a free order at a position of the visitor's sub-queue, or of the whole queue in a room
-- without sub-queues; nil if none is free nearby.
local function find_free_order(visitor, position, old_order)
  local line = sub_queue_of(old_order)
  local first, others = count_ahead_of_sub_queue(line), size(WAITING) - 1
  local own_rank = redis_call('ZRANK', WAITING, visitor)
  if line then others = get_sub_queue_lengths()[line] - 1 end
  local place = first + math.min(position, others + 1)
  if place > first + others then
    local order = others > 0 and read_order_at(place - 1, own_rank) + 1 or old_order
    stats.last_order = math.max(stats.last_order or 0, order - (line and order_range(line) or 0))
    return order
  end
  local order = read_order_at(place, own_rank) - 1
  for _ = 1, LOOP_LIMIT do
    if place == first + 1 or read_order_at(place - 1, own_rank) < order then return order end
    place = place - 1
    order = read_order_at(place, own_rank) - 1
  end
end

local function move(visitor, position, operator, reason)
  local old_order = tonumber(redis_call('ZSCORE', WAITING, visitor) or nil)
  if not old_order then return 0 end
  if phase == PREQUEUE then return -2 end
  local action = position == 0 and 'back' or 'move'
  local order
  if action == 'back' then
    order = tonumber(redis_call('ZSCORE', MOVED, visitor) or nil)
    if not order then return -3 end
  else
    order = find_free_order(visitor, position, old_order)
    if not order then return -1 end
  end
  return change_order(order, visitor, operator, action, old_order, reason)
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  measure_elapsed()
  expire()
  local position = move(ARGV[6], tonumber(ARGV[7]), ARGV[8], ARGV[9])
  call_next()
  finish()
  return {now, position}
end
