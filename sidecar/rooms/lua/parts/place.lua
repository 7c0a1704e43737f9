-- @include "rooms/parts/drawn_places"
-- Computes the orders of newcomers, and restores lost places.

-- Returns a newcomer's order and arrival (visitors/arrival). `random`: a number in [0, 1).
local function make_order(random, class)
  local lot = math.floor(random * DRAWS)
  if phase == PREQUEUE then return lot + lowest_order(FRONT), lot end
  local arrival = is_random and lot - lot % STEP or next_arrival()
  return order_of(arrival, class), arrival
end

-- Restores the place of a visitor who joined at `joined` (ms; nil: unknown), except for the score
-- in `due`, which the caller writes. `cause`: the field `why` of the event in the stream.
local function restore_place(visitor, order, cause, joined)
  add_place(visitor, tonumber(order), (joined or now) * 1000)
  if current_event and joined and joined >= event_begins and joined < current_event.opens_at then
    record_drawn_place(visitor, tonumber(order))
  end
  local fields = {'joined', int(joined or now), 'order', int(order)}
  -- In a pre-queue the event has no order, because the order would reveal the lot.
  event('joined', visitor, cause, unpack(fields, 1, phase == PREQUEUE and 2 or 4))
end
