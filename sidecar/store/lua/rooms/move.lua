-- Moves somebody in line to a position (in their own line, where there are several), or back to
-- where they were before anybody moved them. Where no order is free right there, to the next one
-- before it that is.
-- ARGV    3 visitor  4 position from 1 on, beyond the end is the end; 0: back
--         5 the operator who says so  6 why, or ''
-- RETURNS {now, new position; 0: the visitor is not in line; -1: no order is free nearby; -2: the
--          pre-queue is not drawn yet; -3: nobody moved the visitor}
-- EVENTS  operator, called, expired
-- @include "shared/room"
-- @include "shared/expire"
-- @include "shared/call"
-- @include "shared/moved"
measure_start()
expire()
local visitor, position = ARGV[3], tonumber(ARGV[4])

-- Of whoever stands at a place now, the visitor left out: their order, as a number.
local own
local function order_at(place)
  if own and place > own then place = place + 1 end
  local row = redis_call('ZRANGE', WAITING, place - 1, place - 1, 'WITHSCORES')
  return tonumber(row[2])
end

-- The order for that position in a line; nil where none is free nearby.
local function free_order(from)
  local line = line_of(from)
  local first, size = ahead_of_line(line), redis_call('ZCARD', WAITING) - 1
  own = redis_call('ZRANK', WAITING, visitor)
  if line then size = line_lengths()[line] - 1 end
  local place = first + math.min(position, size + 1)
  if place > first + size then
    local order = size > 0 and order_at(place - 1) + 1 or from
    stats.last_order = math.max(stats.last_order or 0, order - (line and bounds(line) or 0))
    return order
  end
  local order = order_at(place) - 1
  for _ = 1, BOUND do
    if place == first + 1 or order_at(place - 1) < order then return order end
    place = place - 1
    order = order_at(place) - 1
  end
end

local function move()
  local from = tonumber(redis_call('ZSCORE', WAITING, visitor) or nil)
  if not from then return 0 end
  if phase == PREQUEUE then return -2 end
  local what = position == 0 and 'back' or 'move'
  local order
  if what == 'back' then
    order = tonumber(redis_call('ZSCORE', MOVED, visitor) or nil)
    if not order then return -3 end
  else
    order = free_order(from)
    if not order then return -1 end
  end
  return put_at(order, visitor, ARGV[5], what, from, ARGV[6])
end

local moved = move()
call_next()
finish()
return {now, moved}
