-- @include "rooms/parts/no_show"
-- @include "rooms/parts/rate"
-- @include "rooms/parts/measure"
-- @include "rooms/parts/position"
-- Reserves slots for visitors who poll rarely. The timers of a hidden tab may run only once a
-- minute, so if its visitor were called at the head of the queue, the call would always expire
-- before the next poll. Instead the visitor leaves `waiting` and gets a reservation: a slot that
-- becomes free shortly before the next poll is kept for the visitor. The visitor's order is in the
-- sorted set `reserved`, and the time of the next poll in `due`.
local reserved = {} -- the functions that other fragments use
do
-- The largest share of the slots that may be kept for reservations at the same time.
local MAX_KEPT_SHARE = 0.05
-- A slot is kept as soon as only this many more slots become free before the visitor's poll.
local LEAD_SLOTS = 3
-- How many more slots this script may keep.
local remaining_slots

-- Counts and logs that a visitor at the head of the queue was dropped as silent. Returns false.
function reserved.record_silent(visitor, due)
  measure_drops(1)
  event('expired', visitor, is_unused(due) and 'unused' or 'silent', 'position', 1)
  return false
end

-- Returns how many visitors need a slot now, because the slots that become free at the room's pace
-- would come too late for their polls. `dues`: when these visitors poll next, the soonest first.
local function count_needed_slots(dues)
  local ends, held_ms = read_hold_times()
  local ms_per_slot = math.max(held_ms / ends / cap, per_minute and 60000 / per_minute or 0)
  local needed = 0
  for i, due in ipairs(dues) do
    needed = math.max(needed, i - 1 + LEAD_SLOTS - math.max(0, due - now) / ms_per_slot)
  end
  return math.max(0, math.min(math.ceil(needed), #dues, remaining_slots))
end

-- Returns whether a visitor at the head of the queue needs a slot now. If so, counts the slot as
-- kept.
function reserved.take_slot_if_needed(due)
  local is_needed = count_needed_slots({due}) > 0
  if is_needed then remaining_slots = remaining_slots - 1 end
  return is_needed
end

-- Removes the reservations of visitors who are back in the queue, have a session, are silent, or
-- have left. Returns two values:
--   the visitors who have a reservation but no slot yet, as rows {visitor, due, order}, sorted by
--   the time of the next poll
--   how many of these visitors need a slot now
function reserved.find_without_slot()
  remaining_slots = math.max(1, math.floor(MAX_KEPT_SHARE * cap))
  local visitors, orders = queue.split(
    redis_call('ZRANGE', RESERVED, 0, LOOP_LIMIT - 1, 'WITHSCORES'))
  local rows = {}
  if #visitors == 0 then return rows, 0 end
  local dues, waiting = queue.scores_of(DUE, visitors), queue.scores_of(WAITING, visitors)
  local active, admitted = queue.scores_of(ACTIVE, visitors), queue.scores_of(ADMITTED, visitors)
  for i, visitor in ipairs(visitors) do
    if active[i] and not admitted[i] and not waiting[i] then
      remaining_slots = remaining_slots - 1
    elseif waiting[i] or active[i] or not dues[i] then
      redis_call('ZREM', RESERVED, visitor)
      if not waiting[i] then redis_call('ZREM', DUE, visitor) end
    elseif get_silent_time(dues[i] + 0) < now then
      redis_call('ZREM', RESERVED, visitor)
      redis_call('ZREM', DUE, visitor)
      reserved.record_silent(visitor, dues[i] + 0)
    else
      rows[#rows + 1] = {visitor, dues[i] + 0, orders[i]}
    end
  end
  table.sort(rows, function(one, other)
    return one[2] < other[2] or one[2] == other[2] and one[3] + 0 < other[3] + 0
  end)
  local next_polls = {}
  for i, row in ipairs(rows) do next_polls[i] = row[2] end
  local needed_slots = count_needed_slots(next_polls)
  remaining_slots = remaining_slots - needed_slots
  return rows, needed_slots
end

-- Puts a visitor who polls and has a reservation back to the head of the queue. Returns whether the
-- visitor had a reservation.
function reserved.return_to_queue(visitor, joined)
  local order = redis_call('ZSCORE', RESERVED, visitor)
  if not order or redis_call('ZSCORE', WAITING, visitor) then return false end
  redis_call('ZREM', RESERVED, visitor)
  add_place(visitor, tonumber(order), joined * 1000)
  flush()
  return true
end
end
