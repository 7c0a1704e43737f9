-- @include "rooms/parts/position"
-- Gives places in the queue.

-- Returns a newcomer's order, and the arrival in it. `draw`: a random number in [0, 1).
local function next_order(draw, class)
  local lot = math.floor(draw * DRAWS)
  if phase == PREQUEUE then return lot + bottom(FRONT), lot end
  local arrival = is_random and lot - lot % STEP or arrive_now()
  return order_of(arrival, class), arrival
end

-- Adds a visitor who took a place in the pre-queue to the list of the draw, which is published.
local function note_drawn(visitor, order)
  if not event_on or not is_drawn(order) then return end
  if stats.drawn_from ~= event_begins then
    redis_call('UNLINK', DRAWN)
    stats.drawn_from = event_begins
  end
  redis_call('ZADD', DRAWN, 'NX', int(order), visitor)
  found.drawn = nil
end

-- Restores a place that the visitor took at `joined`, ms (nil: unknown). The caller writes to `due`
-- when the next heartbeat is expected.
local function join(visitor, order, why, joined)
  put_in_line(visitor, tonumber(order), (joined or now) * 1000)
  if event_on and joined and joined >= event_begins and joined < event_on.opens_at then
    note_drawn(visitor, tonumber(order))
  end
  local said = {'joined', int(joined or now), 'order', int(order)}
  -- In a pre-queue the event has no order, because it would tell the lot.
  event('joined', visitor, why, unpack(said, 1, phase == PREQUEUE and 2 or 4))
end
