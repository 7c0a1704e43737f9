-- @include "queue/call_heads"
-- @include "rooms/parts/heartbeat_due"
-- @include "rooms/parts/rate"
-- @include "rooms/parts/measure"
-- @include "rooms/parts/weighted_queues"
-- Gives the head of the queue its provisional session if its heartbeat (its score in `due`)
-- was in time; else drops it. Whether it was.
local function call(_, visitor, due, order)
  if silent_from(due) < now then
    measure_drops(1)
    event('expired', visitor, 'silent', 'position', 1)
    return false
  end
  put(ACTIVE, int(called_until(due)), visitor)
  spend_token()
  charge_line()
  event('called', visitor, 'head', 'position', 1, 'order', order)
  return true
end

-- Calls the heads of the queue, as many as slots are free and the rate allows. Returns how many
-- left the queue.
local function call_next()
  flush()
  if room.queue_all or phase ~= OPEN or stage == 2 then return 0 end
  local free = cap - size(ACTIVE)
  if free <= 0 then return 0 end
  free = math.min(free, math.floor(rate_tokens()))
  local line = {queue = WAITING, due = DUE, pop = pop_heads}
  local popped = queue.call_heads(line, free, BOUND, call)
  flush()
  return popped
end
