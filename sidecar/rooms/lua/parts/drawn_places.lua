-- @include "rooms/parts/position"
-- The rules of places that were drawn by lot in the pre-queue of an event: such a place counts only
-- in that event.

-- Adds a visitor who took a place in the pre-queue to the list of the draw, which is published.
local function list_drawn_place(visitor, order)
  if not current_event or not is_drawn(order) then return end
  if stats.drawn_from ~= event_begins then
    redis_call('UNLINK', DRAWN)
    stats.drawn_from = event_begins
  end
  redis_call('ZADD', DRAWN, 'NX', int(order), visitor)
  cache.drawn = nil
end

-- Moves a place that was drawn for an earlier event to the end of the queue. Only for a visitor who
-- polls in the next pre-queue.
local function move_earlier_place(visitor, order, joined)
  if joined < event_begins and is_drawn(order) then
    add_place(visitor, joined * 1000, joined * 1000)
  end
end

-- Returns whether a lapsed place from before the current event is lost: its visitor must join the
-- event as a newcomer. Only a place that was not drawn, in a room that is open between events, can
-- be restored, and only after the opening.
local function is_lost_to_event(order, joined)
  return joined < event_begins
    and (is_drawn(order) or phase == PREQUEUE or room.between_events ~= 'open')
end
