-- @include "visitors/call_heads"
-- @include "rooms/parts/no_show"
-- @include "rooms/parts/rate"
-- @include "rooms/parts/measure"
-- @include "rooms/parts/weighted_queues"
-- @include "rooms/parts/reserved"
-- Calls the next visitors. A called visitor holds a slot, as a provisional session, and must poll
-- before the provisional session ends.
local call_next
do
local function give_slot(visitor, due, order)
  put(ACTIVE, get_call_end(due) + (is_unused(due) and UNUSED or 0), visitor)
  spend_token()
  event('called', visitor, 'head', 'position', 1, 'order', order)
end

-- Gives a slot to a visitor from the head of the queue, or drops a visitor whose heartbeat is
-- overdue. A visitor who polls rarely may get a reservation instead. Returns whether the visitor
-- got a slot. `due`: the visitor's score in `due`.
local function call_or_drop(_, visitor, due, order)
  if get_silent_time(due) < now then return reserved.record_silent(visitor, due) end
  store_credits()
  if polls_rarely(due) then
    redis_call('ZADD', RESERVED, order, visitor)
    if not reserved.take_slot_if_needed(due) then
      put(DUE, due, visitor)
      return false
    end
  end
  give_slot(visitor, due, order)
  return true
end

-- Gives up to `free` slots to visitors with a reservation who will poll soon. Returns how many
-- slots it gave.
local function call_reserved(free)
  local rows, needed_slots = reserved.find_without_slot()
  needed_slots = math.min(needed_slots, free)
  for i = 1, needed_slots do
    local visitor, due, order = unpack(rows[i])
    redis_call('ZREM', DUE, visitor)
    give_slot(visitor, due, order)
  end
  return needed_slots
end

-- Calls as many visitors as there are free slots and as new_users_per_minute allows. Returns how
-- many visitors left the head of the queue, because they were called or dropped.
function call_next()
  flush()
  if is_held or phase ~= OPEN or stage == 2 then return 0 end
  local free = cap - size(ACTIVE)
  if free <= 0 then return 0 end
  free = math.min(free, math.floor(refill_tokens()))
  free = free - call_reserved(free)
  local line = {queue = WAITING, due = DUE, pop = pop_heads}
  local popped = queue.call_heads(line, free, LOOP_LIMIT, call_or_drop)
  flush()
  return popped
end
end
