-- @include "rooms/parts/unused"
-- Begins and extends sessions.
local admit, admit_unused, unused_until
do
-- Returns when a pass ends that is issued or renewed at `at`, ms. The session ends
-- session_grace_ms later.
local function pass_ends(started, at)
  local ends = (room.disable_session_renewal and started or at) + session_ms
  if room.session_max_duration then
    ends = math.min(ends, started + whole_ms(room.session_max_duration))
  end
  return ends
end

local function keep(visitor, started, ends)
  put(ACTIVE, ends, visitor)
  put(ADMITTED, started, visitor)
end

-- Begins or extends the full session that began at `started`. The session does not end before
-- `promised`, when an earlier pass ends, even if the settings have been changed since. Returns when
-- the new pass ends, ms.
function admit(visitor, started, promised)
  local ends = math.max(pass_ends(started, now), promised or 0)
  stats.last_end = math.max(stats.last_end or 0, ends)
  keep(visitor, started, ends + room.session_grace_ms)
  return ends
end

-- Returns until when, at the latest, a newcomer who was admitted at once may first use the pass.
function unused_until(started)
  return pass_ends(started, started) + room.session_grace_ms
end

-- Begins the session of a newcomer who has not used the pass yet. If slots are scarce, it ends
-- after claim_window (rooms/lua/parts/expire.lua), but not before `least`, its end so far. Returns
-- when the pass ends, ms.
function admit_unused(visitor, started, least)
  local latest = unused_until(started)
  local ends = latest - room.session_grace_ms
  stats.last_end = math.max(stats.last_end or 0, ends)
  keep(visitor, started, math.max(math.min(now + claim_ms, latest) + UNUSED, least or 0))
  return ends
end
end
