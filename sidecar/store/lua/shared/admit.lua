-- When a pass given or renewed now ends. Its session outlives it by session_grace_ms.
local function pass_ends(started)
  local ends = now + session_ms
  if room.session_max_duration then
    ends = math.min(ends, started + room.session_max_duration * 1000)
  end
  return ends
end

-- Gives a full session that began at `started`. Returns when its pass ends, ms.
local function admit(visitor, started)
  local ends = pass_ends(started)
  redis_call('ZADD', ACTIVE, int(ends + room.session_grace_ms), visitor)
  redis_call('ZADD', ADMITTED, int(started), visitor)
  return ends
end
