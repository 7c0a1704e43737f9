-- Reads the state of one visitor. Changes nothing.
-- ARGV    6 visitor
-- RETURNS a list:
--         now
--         when the session ends, ms (-1: none)
--         when the session began, ms (-1: none)
--         when the visitor's pass was revoked, ms (-1: never)
--         position (0: not waiting)
--         position in the sub-queue
--         {the values of make_origin_fields()}, which is empty if the visitor is not waiting
-- @include "rooms/parts/room"
-- @include "rooms/parts/origin"

local function read_score(key, visitor)
  return tonumber(redis_call('ZSCORE', key, visitor) or nil)
end

local function run(KEYS, ARGV)
  begin_reading(KEYS, ARGV)
  local visitor = ARGV[6]
  local reply = {now}
  for n, key in ipairs({ACTIVE, ADMITTED, REVOKED}) do
    reply[n + 1] = read_score(key, visitor) or -1
  end
  local rank, order = redis_call('ZRANK', WAITING, visitor), read_score(WAITING, visitor)
  if not rank and reply[2] < 0 then -- the visitor may be next, with a reserved slot
    order = read_score(RESERVED, visitor)
    rank = order and 0
  end
  reply[5], reply[6], reply[7] = rank and rank + 1 or 0, 0, {}
  if not rank then return reply end
  reply[6] = math.max(1, reply[5] - count_ahead_of_sub_queue(sub_queue_of(order)))
  reply[7] = {make_origin_fields(order, redis_call('ZSCORE', MOVED, visitor))}
  return reply
end
