-- @include "rooms/parts/drawn_places"
-- Gives places in the queue.

-- Returns a newcomer's order, and the arrival in it. `draw`: a random number in [0, 1).
local function next_order(draw, class)
  local lot = math.floor(draw * DRAWS)
  if phase == PREQUEUE then return lot + bottom(FRONT), lot end
  local arrival = is_random and lot - lot % STEP or next_arrival()
  return order_of(arrival, class), arrival
end

-- Restores a place that the visitor took at `joined`, ms (nil: unknown). The caller writes to `due`
-- when the next heartbeat is expected.
local function restore_place(visitor, order, why, joined)
  add_place(visitor, tonumber(order), (joined or now) * 1000)
  if current_event and joined and joined >= event_begins and joined < current_event.opens_at then
    list_drawn_place(visitor, tonumber(order))
  end
  local fields = {'joined', int(joined or now), 'order', int(order)}
  -- In a pre-queue the event has no order, because the order would reveal the lot.
  event('joined', visitor, why, unpack(fields, 1, phase == PREQUEUE and 2 or 4))
end
