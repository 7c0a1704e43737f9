-- @include "rooms/parts/no_show"
-- @include "rooms/parts/rate"
-- @include "rooms/parts/measure"
-- @include "rooms/parts/position"
-- Reserves slots for visitors who poll seldom. The timers of a hidden tab may run only once a
-- minute. If its visitor were called at the head of the queue, the call would always expire before
-- the next poll. So the visitor gets a reservation instead: a slot that becomes free shortly before
-- that poll is kept for the visitor. Until then `reserved` has the visitor's order, and `due` the
-- time of the next poll.
local reserved = {} -- the functions that other fragments use
do
-- The largest share of the slots that may be kept at a time.
local MAX_SHARE = 0.05
-- A slot is kept from about when this many slots become free before the visitor's poll.
local LEAD_SLOTS = 3
-- How many more slots may be kept.
local remaining

-- Records that a visitor at the head of the queue was dropped as silent. Returns false.
function reserved.drop_silent(visitor, due)
  measure_drops(1)
  event('expired', visitor, is_unused(due) and 'unused' or 'silent', 'position', 1)
  return false
end

-- Returns how many visitors need a slot now. `dues`: when they poll, soonest first. Slots are
-- needed now if those that become free at the room's pace would come too late for one of the polls.
local function needed(dues)
  local ends, held_ms = hold_times()
  local each_ms = math.max(held_ms / ends / cap, per_minute and 60000 / per_minute or 0)
  local most = 0
  for i, due in ipairs(dues) do
    most = math.max(most, i - 1 + LEAD_SLOTS - math.max(0, due - now) / each_ms)
  end
  return math.max(0, math.min(math.ceil(most), #dues, remaining))
end

-- Returns whether a visitor at the head of the queue needs the slot now.
function reserved.wants_slot(due)
  local is_wanted = needed({due}) > 0
  if is_wanted then remaining = remaining - 1 end
  return is_wanted
end

-- Returns the visitors with a reservation but no slot, the soonest poll first, as {visitor, due,
-- order}; and how many of them need a slot now. Removes reservations of visitors who are back in
-- the queue, have a session, are silent, or have left.
function reserved.find()
  remaining = math.max(1, math.floor(MAX_SHARE * cap))
  local visitors, orders = queue.split(
    redis_call('ZRANGE', RESERVED, 0, LOOP_LIMIT - 1, 'WITHSCORES'))
  local rows = {}
  if #visitors == 0 then return rows, 0 end
  local dues, waiting = queue.scores_of(DUE, visitors), queue.scores_of(WAITING, visitors)
  local active, admitted = queue.scores_of(ACTIVE, visitors), queue.scores_of(ADMITTED, visitors)
  for i, visitor in ipairs(visitors) do
    if active[i] and not admitted[i] and not waiting[i] then
      remaining = remaining - 1
    elseif waiting[i] or active[i] or not dues[i] then
      redis_call('ZREM', RESERVED, visitor)
      if not waiting[i] then redis_call('ZREM', DUE, visitor) end
    elseif silent_from(dues[i] + 0) < now then
      redis_call('ZREM', RESERVED, visitor)
      redis_call('ZREM', DUE, visitor)
      reserved.drop_silent(visitor, dues[i] + 0)
    else
      rows[#rows + 1] = {visitor, dues[i] + 0, orders[i]}
    end
  end
  table.sort(rows, function(one, other)
    return one[2] < other[2] or one[2] == other[2] and one[3] + 0 < other[3] + 0
  end)
  local soonest = {}
  for i, row in ipairs(rows) do soonest[i] = row[2] end
  local need = needed(soonest)
  remaining = remaining - need
  return rows, need
end

-- Returns a polling visitor with a reservation to the head of the queue. Returns whether there was
-- a reservation.
function reserved.take_back(visitor, joined)
  local order = redis_call('ZSCORE', RESERVED, visitor)
  if not order or redis_call('ZSCORE', WAITING, visitor) then return false end
  redis_call('ZREM', RESERVED, visitor)
  add_place(visitor, tonumber(order), joined * 1000)
  flush()
  return true
end
end
