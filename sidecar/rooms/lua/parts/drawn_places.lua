-- @include "rooms/parts/position"
-- Handles places that were drawn by lot in the pre-queue of an event. Such a place is valid only in
-- that event.

-- Adds a visitor who joined the pre-queue to `drawn`, the list of drawn places, which is published.
local function record_drawn_place(visitor, order)
  if not current_event or not is_drawn(order) then return end
  if stats.drawn_from ~= event_begins then
    redis_call('UNLINK', DRAWN)
    stats.drawn_from = event_begins
  end
  redis_call('ZADD', DRAWN, 'NX', int(order), visitor)
  cache.drawn = nil
end

-- Moves a visitor who polls in a pre-queue to the end of the queue, if the visitor's place was
-- drawn for an earlier event.
local function move_place_of_earlier_draw(visitor, order, joined)
  if joined < event_begins and is_drawn(order) then
    add_place(visitor, joined * 1000, joined * 1000)
  end
end

-- Returns whether a missing place must not be restored because of the current event, so that the
-- visitor has to join the event as a newcomer. A place from before the event is restored only after
-- the opening, in a room that is open between events, and only if the place was not drawn.
local function is_lost_to_event(order, joined)
  return joined < event_begins
    and (is_drawn(order) or phase == PREQUEUE or room.between_events ~= 'open')
end
