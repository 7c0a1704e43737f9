-- @include "rooms/parts/standing"
-- @include "rooms/parts/no_show"
-- @include "rooms/parts/early_polls"
-- @include "rooms/parts/places_per_address"
-- @include "rooms/parts/reserved"
-- Handles the heartbeat of a visitor who has a place in the queue.

-- Returns whether call_next() would drop the visitor as silent. The first comparison saves time: a
-- visitor is never silent within 5 s, the shortest claim_window.
local function would_be_dropped(due)
  return due < now - 5000 and get_silent_time(due) < now
end

-- Records a heartbeat. A script records all heartbeats of a batch before it calls anybody, so that
-- none of these visitors is dropped as silent. Writes the visitor's score in `due` only if the
-- visitor would be dropped; otherwise reply_to_poll() writes the score. Returns the time, in ms,
-- until a visitor over poll_limit may poll again, or 0 for other visitors.
local function record_heartbeat(visitor, due, order, joined)
  local is_rare = polls_rarely(due)
  if is_rare then reserved.return_to_queue(visitor, joined) end
  if phase == PREQUEUE then
    move_place_of_earlier_draw(visitor, tonumber(order), tonumber(joined))
  end
  if is_rare then
    redis_call('ZADD', DUE, now, visitor)
    return 0
  end
  if due >= now then return count_early_poll(visitor, due) end
  if would_be_dropped(due) then redis_call('ZADD', DUE, now, visitor) end
  return 0
end

-- Returns whether these polls change nobody's place or session, because all come when they are due,
-- no session has expired, and nobody can be called. Then the script need not update the
-- measurements. Returns false if their last update is 100 ms old.
local function are_routine_polls(dues)
  local since_ms = now - (stats.measured_at or 0)
  if since_ms < 0 or since_ms >= 100 or phase ~= OPEN or stage ~= 0 or has_outage_just_ended then
    return false
  end
  for n = 1, #dues do
    local due = dues[n] and dues[n] + 0
    if not due or due >= now or would_be_dropped(due) or polls_rarely(due) then return false end
  end
  return (is_held or size(ACTIVE) >= cap)
    and redis_call('ZCOUNT', ACTIVE, '-inf', int(now)) == 0
end
