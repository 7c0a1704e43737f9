-- Moves a waiting visitor to a position (in the visitor's sub-queue, if the room has sub-queues),
-- or back to the place before all moves. If no order is free at the position, the visitor gets the
-- next free one before it.
-- ARGV    6 visitor  7 position, from 1; any position beyond the end means the end; 0: back
--         8 the operator  9 the reason, or ''
-- RETURNS {now, new position; 0: the visitor is not waiting; -1: no order is free nearby; -2: the
--          pre-queue is not drawn yet; -3: the visitor was not moved}
-- EVENTS  operator, called, expired
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"
-- @include "rooms/parts/moved"

-- Returns the order at a place of the queue, from 1. The visitor to move, at the rank `own`, does
-- not count.
local function order_at(place, own)
  if own and place > own then place = place + 1 end
  local row = redis_call('ZRANGE', WAITING, place - 1, place - 1, 'WITHSCORES')
  return tonumber(row[2])
end

-- Returns a free order for a position in the visitor's queue; nil if none is free nearby.
local function free_order(visitor, position, from)
  local line = sub_queue_of(from)
  local first, others = ahead_of_sub_queue(line), size(WAITING) - 1
  local own = redis_call('ZRANK', WAITING, visitor)
  if line then others = sub_queue_lengths()[line] - 1 end
  local place = first + math.min(position, others + 1)
  if place > first + others then
    local order = others > 0 and order_at(place - 1, own) + 1 or from
    stats.last_order = math.max(stats.last_order or 0, order - (line and bounds(line) or 0))
    return order
  end
  local order = order_at(place, own) - 1
  for _ = 1, LOOP_LIMIT do
    if place == first + 1 or order_at(place - 1, own) < order then return order end
    place = place - 1
    order = order_at(place, own) - 1
  end
end

local function move(visitor, position, by, why)
  local from = tonumber(redis_call('ZSCORE', WAITING, visitor) or nil)
  if not from then return 0 end
  if phase == PREQUEUE then return -2 end
  local what = position == 0 and 'back' or 'move'
  local order
  if what == 'back' then
    order = tonumber(redis_call('ZSCORE', MOVED, visitor) or nil)
    if not order then return -3 end
  else
    order = free_order(visitor, position, from)
    if not order then return -1 end
  end
  return put_at(order, visitor, by, what, from, why)
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  measure_start()
  expire()
  local moved = move(ARGV[6], tonumber(ARGV[7]), ARGV[8], ARGV[9])
  call_next()
  finish()
  return {now, moved}
end
