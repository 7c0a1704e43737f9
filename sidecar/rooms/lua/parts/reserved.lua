-- @include "rooms/parts/heartbeat_due"
-- @include "rooms/parts/rate"
-- @include "rooms/parts/measure"
-- @include "rooms/parts/position"
-- Slots for those who poll seldom. A hidden tab's timers may run once a minute: called at the head,
-- its visitor would be a no-show before the next poll, and so each time. Their call is a
-- reservation: a slot that comes free shortly before that poll is kept for them. `reserved` holds
-- their orders, and `due` when they poll, until they have a slot.
local reserved = {} -- what the others use of it
do
-- Of the slots, at most: how many are kept at a time.
local SHARE = 0.05
-- How many slots come free, about, from when one is kept on until the poll.
local AHEAD = 3
-- How many more may be kept.
local left

-- Drops a visitor who is next and silent.
function reserved.drop_silent(visitor, due)
  measure_drops(1)
  event('expired', visitor, is_unused(due) and 'unused' or 'silent', 'position', 1)
  return false
end

-- Returns how many of these visitors need a slot now, from when they poll: if slots come free at
-- the room's pace and go to the soonest of them, a slot that is kept later comes too late for one.
local function needed(dues)
  local ends, held_ms = held()
  local each_ms = math.max(held_ms / ends / cap, per_minute and 60000 / per_minute or 0)
  local most = 0
  for i, due in ipairs(dues) do
    most = math.max(most, i - 1 + AHEAD - math.max(0, due - now) / each_ms)
  end
  return math.max(0, math.min(math.ceil(most), #dues, left))
end

-- The same for one visitor who is called at the head.
function reserved.wants_slot(due)
  local is_wanted = needed({due}) > 0
  if is_wanted then left = left - 1 end
  return is_wanted
end

-- Returns the visitors with a reservation and no slot yet, soonest first: {visitor, due, order};
-- and how many of them need a slot. Removes reservations of who is back, silent or gone.
function reserved.find()
  left = math.max(1, math.floor(SHARE * cap))
  local visitors, orders = queue.split(redis_call('ZRANGE', RESERVED, 0, BOUND - 1, 'WITHSCORES'))
  local rows = {}
  if #visitors == 0 then return rows, 0 end
  local dues, waiting = queue.scores_of(DUE, visitors), queue.scores_of(WAITING, visitors)
  local active, admitted = queue.scores_of(ACTIVE, visitors), queue.scores_of(ADMITTED, visitors)
  for i, visitor in ipairs(visitors) do
    if active[i] and not admitted[i] and not waiting[i] then
      left = left - 1
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
  left = left - need
  return rows, need
end

-- Puts a visitor with a reservation who polls back to the head. Returns whether there was one.
function reserved.take_back(visitor, joined)
  local order = redis_call('ZSCORE', RESERVED, visitor)
  if not order or redis_call('ZSCORE', WAITING, visitor) then return false end
  redis_call('ZREM', RESERVED, visitor)
  put_in_line(visitor, tonumber(order), joined * 1000)
  flush()
  return true
end
end
