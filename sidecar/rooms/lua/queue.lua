-- Lists a page of the waiting visitors in their order. Changes nothing.
-- ARGV    6 how many visitors to skip
--         7 the maximum number of visitors to list
-- RETURNS {now, then for each visitor: id and the four values of make_origin_fields()}
-- @include "rooms/parts/room"
-- @include "rooms/parts/origin"

-- Returns for each visitor the order before an operator moved the visitor, or false for a visitor
-- who was not moved. Reads in batches, because Lua can pass only a few thousand arguments to a
-- command.
local BATCH_SIZE = 1000
local function read_orders_before_moves(visitors)
  local original_orders = {}
  for first = 1, #visitors, BATCH_SIZE do
    local last = math.min(#visitors, first + BATCH_SIZE - 1)
    for n, order in ipairs(redis_call('ZMSCORE', MOVED, unpack(visitors, first, last))) do
      original_orders[first + n - 1] = order
    end
  end
  return original_orders
end

local function run(KEYS, ARGV)
  begin_reading(KEYS, ARGV)
  local first, max_count = tonumber(ARGV[6]), tonumber(ARGV[7])
  local visitors, orders = queue.split(
    redis_call('ZRANGE', WAITING, first, first + max_count - 1, 'WITHSCORES'))
  local reply, original_orders = {now}, read_orders_before_moves(visitors)
  for n, visitor in ipairs(visitors) do
    local i = #reply
    reply[i + 1] = visitor
    reply[i + 2], reply[i + 3], reply[i + 4], reply[i + 5] = make_origin_fields(
      orders[n] + 0, original_orders[n])
  end
  return reply
end
