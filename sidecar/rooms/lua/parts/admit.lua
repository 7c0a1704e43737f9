-- When a pass given or renewed now ends. Its session outlives it by session_grace_ms.
local function pass_ends(started)
  local ends = (room.disable_session_renewal and started or now) + session_ms
  if room.session_max_duration then
    ends = math.min(ends, started + whole_ms(room.session_max_duration))
  end
  return ends
end

-- Gives a full session that began at `started`, or prolongs it. An earlier pass that ends at
-- `promised` is kept to it, whatever the settings say since: it is honoured until then.
-- Returns when the new pass ends, ms.
local function admit(visitor, started, promised)
  local ends = math.max(pass_ends(started), promised or 0)
  stats.last_end = math.max(stats.last_end or 0, ends)
  put(ACTIVE, ends + room.session_grace_ms, visitor)
  put(ADMITTED, started, visitor)
  return ends
end
