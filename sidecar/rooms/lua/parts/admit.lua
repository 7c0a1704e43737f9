-- Begins and extends sessions.
local admit, compute_pass_end, store_session
do
-- Returns the time, in ms, at which a pass ends that is issued or renewed at the time `issued`, in
-- a session that began at `started`. The session itself ends session_grace_ms later.
function compute_pass_end(started, issued)
  local ends = (room.disable_session_renewal and started or issued) + session_ms
  if room.session_max_duration then
    ends = math.min(ends, started + to_ms(room.session_max_duration))
  end
  return ends
end

function store_session(visitor, started, ends)
  put(ACTIVE, ends, visitor)
  put(ADMITTED, started, visitor)
end

-- Begins or extends the session that began at `started`. Returns the time, in ms, at which its new
-- pass ends. This is never before `valid_until`, the time until which earlier passes of the session
-- are valid, even if the settings have been changed since then.
function admit(visitor, started, valid_until)
  local ends = math.max(compute_pass_end(started, now), valid_until or 0)
  stats.last_end = math.max(stats.last_end or 0, ends)
  store_session(visitor, started, ends + room.session_grace_ms)
  return ends
end
end
