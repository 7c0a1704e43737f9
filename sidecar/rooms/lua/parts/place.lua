-- @include "rooms/parts/position"
-- Places in the queue.

-- A newcomer's order, and the arrival that it was made of. `draw` is in [0, 1).
local function next_order(draw, class)
  local lot = math.floor(draw * DRAWS)
  if phase == PREQUEUE then return lot + bottom(FRONT), lot end
  local arrival = is_random and lot - lot % STEP or arrive_now()
  return order_of(arrival, class), arrival
end

-- A visitor who took a place in the pre-queue stays in its list, for all to check.
local function note_drawn(visitor, order)
  if not event_on or not is_drawn(order) then return end
  if stats.drawn_from ~= event_begins then
    redis_call('UNLINK', DRAWN)
    stats.drawn_from = event_begins
  end
  redis_call('ZADD', DRAWN, 'NX', int(order), visitor)
  found.drawn = nil
end

-- Somebody is back at a place that was taken at `joined` (ms; nil where unknown). The caller
-- notes in `due` when the next heartbeat is expected.
local function join(visitor, order, why, joined)
  put_in_line(visitor, tonumber(order), (joined or now) * 1000)
  if event_on and joined and joined >= event_begins and joined < event_on.opens_at then
    note_drawn(visitor, tonumber(order))
  end
  local said = {'joined', int(joined or now), 'order', int(order)}
  event('joined', visitor, why, unpack(said, 1, phase == PREQUEUE and 2 or 4)) -- a lot is kept back
end
