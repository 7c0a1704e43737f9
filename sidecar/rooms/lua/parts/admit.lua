-- @include "rooms/parts/unused"
-- Sessions: begins and prolongs them.
local admit, admit_unused, unused_until
do
-- Returns when a pass ends that is given or renewed at `at`, ms. Its session outlives it by
-- session_grace_ms.
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

-- Gives a full session that began at `started`, or prolongs it. An earlier pass that ends at
-- `promised` is kept to it, whatever the settings say since: it is honoured until then.
-- Returns when the new pass ends, ms.
function admit(visitor, started, promised)
  local ends = math.max(pass_ends(started, now), promised or 0)
  stats.last_end = math.max(stats.last_end or 0, ends)
  keep(visitor, started, ends + room.session_grace_ms)
  return ends
end

-- Returns until when, at the latest, a newcomer who was admitted at once may show the pass.
function unused_until(started)
  return pass_ends(started, started) + room.session_grace_ms
end

-- Begins the session of a newcomer who has not shown the pass yet. Where slots are wanted it ends
-- after claim_window (rooms/lua/parts/expire.lua), but not before `least`, until when it was
-- promised. Returns when the pass ends, ms.
function admit_unused(visitor, started, least)
  local latest = unused_until(started)
  local ends = latest - room.session_grace_ms
  stats.last_end = math.max(stats.last_end or 0, ends)
  keep(visitor, started, math.max(math.min(now + claim_ms, latest) + UNUSED, least or 0))
  return ends
end
end
