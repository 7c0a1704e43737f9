-- Changes the class of a waiting visitor. The visitor gets the order that a visitor of the new
-- class would have got at the same time.
-- ARGV    6 visitor
--         7 class, or '' for none
--         8 id of a one-time grant of the class, or ''
--         9 when the grant expires, ms
--         10 the operator who changes the class, or '' if the visitor claims the class, which never
--         moves the visitor back
--         11 the operator's reason, or ''
-- RETURNS {now, the visitor's position after the change, or a code}. The codes:
--         0: the visitor is not waiting
--         -1: the grant was used before
--         -2: the place is or will be drawn by lot, so it can have no class
-- EVENTS  graded, operator, called, expired
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"
-- @include "rooms/parts/moved"
-- @include "rooms/parts/origin"

local function reclassify(visitor, class, grant, expires, operator, reason)
  local old_order = tonumber(redis_call('ZSCORE', WAITING, visitor) or nil)
  if not old_order then return 0 end
  if phase == PREQUEUE or is_drawn(old_order) then return -2 end
  local original_order = tonumber(redis_call('ZSCORE', MOVED, visitor) or old_order)
  local order = order_of(arrival_of(original_order), class)
  if operator == '' then
    if order >= old_order then return position_of(visitor) end
    if grant ~= '' and redis_call('ZADD', GRANTS, 'NX', expires, grant) == 0 then return -1 end
  end
  if order == old_order then return position_of(visitor) end
  -- An operator may have moved another visitor to this order.
  for _ = 1, STEP do
    if redis_call('ZCOUNT', WAITING, int(order), int(order)) == 0 then break end
    order = order - 1
  end
  local position = change_order(order, visitor, operator, 'grade', old_order, reason)
  local cause = operator == '' and 'grant' or 'operator'
  event('graded', visitor, cause, 'order', int(order), 'class', class)
  return position
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  measure_elapsed()
  expire()
  local position = reclassify(ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11])
  call_next()
  finish()
  return {now, position}
end
