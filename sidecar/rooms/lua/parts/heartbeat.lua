-- @include "rooms/parts/standing"
-- @include "rooms/parts/no_show"
-- @include "rooms/parts/early_polls"
-- @include "rooms/parts/places_per_address"
-- @include "rooms/parts/reserved"
-- Returns whether a call would drop the visitor as silent. The first comparison is only faster:
-- nobody counts as silent within 5 s, the least claim_window.
local function is_skipped(due)
  return due < now - 5000 and silent_from(due) < now
end

-- Records the heartbeat of a visitor with a place. A script records all heartbeats of a batch
-- before any call, so that a call drops none of these visitors. `due` is written here only if a
-- call would drop the visitor; else the reply writes `due`. Returns for how many ms the visitor is
-- over poll_limit, or 0.
local function record_heartbeat(visitor, due, order, joined)
  local seldom = is_seldom(due)
  if seldom then reserved.take_back(visitor, joined) end
  if phase == PREQUEUE then move_earlier_place(visitor, tonumber(order), tonumber(joined)) end
  if seldom then
    redis_call('ZADD', DUE, now, visitor)
    return 0
  end
  if due >= now then return early_poll(visitor, due) end
  if is_skipped(due) then redis_call('ZADD', DUE, now, visitor) end
  return 0
end

-- Returns whether these polls change nobody's place or session: they come as advised, no session
-- has expired, and nobody can be called. If so, a script need not update the measurements, unless
-- the last update is 100 ms old.
local function is_quiet(dues)
  local since_ms = now - (stats.measured_at or 0)
  if since_ms < 0 or since_ms >= 100 or phase ~= OPEN or stage ~= 0 or has_outage_ended then
    return false
  end
  for n = 1, #dues do
    local due = dues[n] and dues[n] + 0
    if not due or due >= now or is_skipped(due) or is_seldom(due) then return false end
  end
  return (room.queue_all or size(ACTIVE) >= cap)
    and redis_call('ZCOUNT', ACTIVE, '-inf', int(now)) == 0
end
