-- Begins and extends sessions.
local admit, pass_ends, store_session
do
-- Returns when a pass ends that is issued or renewed at `at`, ms. The session ends
-- session_grace_ms later.
function pass_ends(started, at)
  local ends = (room.disable_session_renewal and started or at) + session_ms
  if room.session_max_duration then
    ends = math.min(ends, started + whole_ms(room.session_max_duration))
  end
  return ends
end

function store_session(visitor, started, ends)
  put(ACTIVE, ends, visitor)
  put(ADMITTED, started, visitor)
end

-- Begins or extends the full session that began at `started`. The session does not end before
-- `promised`, when an earlier pass ends, even if the settings have been changed since. Returns when
-- the new pass ends, ms.
function admit(visitor, started, promised)
  local ends = math.max(pass_ends(started, now), promised or 0)
  stats.last_end = math.max(stats.last_end or 0, ends)
  store_session(visitor, started, ends + room.session_grace_ms)
  return ends
end
end
