-- @include "rooms/parts/admit"
-- @include "rooms/parts/unused"
-- Sessions of newcomers who were admitted at once and have not used the pass yet. If slots are
-- scarce, such a session ends early.
local are_slots_scarce, unused_until, admit_unused
do
-- Returns whether slots are scarce: somebody waits, or 90 % of the slots are taken.
function are_slots_scarce()
  return redis_call('EXISTS', DUE) == 1 or 10 * size(ACTIVE) >= 9 * cap
end

-- Returns until when, at the latest, a newcomer who was admitted at once may first use the pass.
function unused_until(started)
  return pass_ends(started, started) + room.session_grace_ms
end

-- Begins the session of a newcomer who has not used the pass yet. If slots are scarce, the session
-- ends after claim_window, but not before `least`, its end so far. Returns when the pass ends, ms.
function admit_unused(visitor, started, least)
  local latest = unused_until(started)
  local ends = latest - room.session_grace_ms
  stats.last_end = math.max(stats.last_end or 0, ends)
  store_session(visitor, started, math.max(math.min(now + claim_ms, latest) + UNUSED, least or 0))
  return ends
end
end
