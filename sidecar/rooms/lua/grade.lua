-- Changes the class of a waiting visitor, who then gets the order that a visitor of that class
-- would have got at the same time.
-- ARGV    6 visitor  7 class, '' for none  8 id of a one-time grant of the class, or ''  9 when the
--         grant expires, ms  10 the operator, or '' for a grant, which never moves a visitor back
--         11 the reason, or ''
-- RETURNS {now, position in the queue, which may be unchanged; 0: the visitor is not waiting; -1:
--          the grant was used before; -2: the place is drawn, and drawn places have no class}
-- EVENTS  graded, operator, called, expired
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"
-- @include "rooms/parts/moved"
-- @include "rooms/parts/origin"

local function reclassify(visitor, class, grant, expires, by, why)
  local from = tonumber(redis_call('ZSCORE', WAITING, visitor) or nil)
  if not from then return 0 end
  if phase == PREQUEUE or is_drawn(from) then return -2 end
  local original_order = tonumber(redis_call('ZSCORE', MOVED, visitor) or from)
  local order = order_of(arrival_of(original_order), class)
  if by == '' then
    if order >= from then return position_of(visitor) end
    if grant ~= '' and redis_call('ZADD', GRANTS, 'NX', expires, grant) == 0 then return -1 end
  end
  if order == from then return position_of(visitor) end
  for _ = 1, STEP do -- the order may belong to a visitor who was moved there
    if redis_call('ZCOUNT', WAITING, int(order), int(order)) == 0 then break end
    order = order - 1
  end
  local position = put_at(order, visitor, by, 'grade', from, why)
  event('graded', visitor, by == '' and 'grant' or 'operator', 'order', int(order), 'class', class)
  return position
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  measure_start()
  expire()
  local changed = reclassify(ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11])
  call_next()
  finish()
  return {now, changed}
end
