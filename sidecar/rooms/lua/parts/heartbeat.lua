-- @include "rooms/parts/standing"
-- @include "rooms/parts/no_show"
-- @include "rooms/parts/early_polls"
-- @include "rooms/parts/places_per_address"
-- @include "rooms/parts/reserved"
-- Handles the heartbeat of a visitor who has a place in the queue.

-- Returns whether call_next() would drop the visitor as silent. Nobody counts as silent within 5 s,
-- the shortest claim_window, so the first comparison saves time.
local function would_be_skipped(due)
  return due < now - 5000 and get_silent_time(due) < now
end

-- Records a heartbeat. A script records all heartbeats of a batch before it calls anybody, so that
-- none of these visitors is dropped as silent. Writes the visitor's score in `due` only if the
-- visitor would be dropped; otherwise reply_to_poll() writes the score. Returns the time until the
-- visitor may poll again, ms, if the visitor is over poll_limit; else 0.
local function record_heartbeat(visitor, due, order, joined)
  local seldom = polls_rarely(due)
  if seldom then reserved.return_to_queue(visitor, joined) end
  if phase == PREQUEUE then move_earlier_place(visitor, tonumber(order), tonumber(joined)) end
  if seldom then
    redis_call('ZADD', DUE, now, visitor)
    return 0
  end
  if due >= now then return count_early_poll(visitor, due) end
  if would_be_skipped(due) then redis_call('ZADD', DUE, now, visitor) end
  return 0
end

-- Returns whether these polls change nobody's place or session, because all come as advised, no
-- session has expired, and nobody can be called. Then the script need not update the measurements.
-- Returns false if the last update of the measurements is 100 ms old.
local function are_routine_polls(dues)
  local since_ms = now - (stats.measured_at or 0)
  if since_ms < 0 or since_ms >= 100 or phase ~= OPEN or stage ~= 0 or has_outage_just_ended then
    return false
  end
  for n = 1, #dues do
    local due = dues[n] and dues[n] + 0
    if not due or due >= now or would_be_skipped(due) or polls_rarely(due) then return false end
  end
  return (is_held or size(ACTIVE) >= cap)
    and redis_call('ZCOUNT', ACTIVE, '-inf', int(now)) == 0
end
