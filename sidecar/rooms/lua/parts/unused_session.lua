-- @include "rooms/parts/admit"
-- @include "rooms/parts/unused"
-- Handles unused sessions: those of newcomers who were admitted at once and have not sent their
-- passes yet. If slots are scarce, such a session ends early.
local are_slots_scarce, get_unused_end, admit_unused
do
-- Returns whether slots are scarce: somebody waits, or 90 % of the slots are taken.
function are_slots_scarce()
  return redis_call('EXISTS', DUE) == 1 or 10 * size(ACTIVE) >= 9 * cap
end

-- Returns the latest time at which a newcomer who was admitted at `started` may first use the pass.
function get_unused_end(started)
  return compute_pass_end(started, started) + room.session_grace_ms
end

-- Begins or extends an unused session. If slots are scarce, the session will end after
-- claim_window, but not before `old_end`, the end that it has had until now (nil: it is new or has
-- just ended). Returns the time, in ms, at which the pass ends.
function admit_unused(visitor, started, old_end)
  local latest = get_unused_end(started)
  local ends = latest - room.session_grace_ms
  stats.last_end = math.max(stats.last_end or 0, ends)
  store_session(visitor, started, math.max(math.min(now + claim_ms, latest) + UNUSED, old_end or 0))
  return ends
end
end
