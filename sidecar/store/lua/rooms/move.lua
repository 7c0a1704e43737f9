-- Moves somebody in line to a position. Where no order is free right there (places taken in one
-- and the same microsecond), to the next one before it that is.
-- ARGV    3 visitor  4 position from 1 on; beyond the end is the end  5 the operator who says so
-- RETURNS {now, new position; 0: the visitor is not in line; -1: no order is free nearby}
-- EVENTS  operator, called, expired
-- @include "shared/room"
-- @include "shared/expire"
-- @include "shared/call"
measure_start()
expire()
local visitor, position = ARGV[3], tonumber(ARGV[4])
local function reply(moved)
  call_next()
  finish()
  return {now, moved}
end

local was, from = redis_call('ZRANK', WAITING, visitor), redis_call('ZSCORE', WAITING, visitor)
if not was then return reply(0) end
redis_call('ZREM', WAITING, visitor)
position = math.min(position, redis_call('ZCARD', WAITING) + 1)

-- The order of whoever stands at a position now, as a number.
local function order_at(place)
  local row = redis_call('ZRANGE', WAITING, place - 1, place - 1, 'WITHSCORES')
  return tonumber(row[2])
end

local behind = order_at(position)
local order
if not behind then
  order = position == 1 and tonumber(from) or order_at(position - 1) + 1
  stats.last_order = math.max(stats.last_order or 0, order)
else
  order = behind - 1
  local steps = 0
  while position > 1 and order_at(position - 1) >= order do
    position, steps = position - 1, steps + 1
    order = order_at(position) - 1
    if steps > BOUND then
      redis_call('ZADD', WAITING, from, visitor)
      return reply(-1)
    end
  end
end
redis_call('ZADD', WAITING, int(order), visitor)
note(ARGV[5], 'move', visitor, int(was + 1) .. ' to ' .. int(position), 'order', int(order))
return reply(position)
