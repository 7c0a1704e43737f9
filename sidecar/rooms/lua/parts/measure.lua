-- Measures what the estimate needs: how long a slot is held (held_ms over ends) and how often a
-- visitor gives up waiting (drops over waited_ms). Every end fades all four a little, so they cover
-- about the last two full rooms and twenty ends more. Nothing fades while nothing happens.
local function memory_ends()
  return 2 * cap + 20
end

-- Returns ends and held_ms. Before anything was measured, a third of the room (one slot at least)
-- counts as held for session_duration.
local function held()
  if stats.ends then return stats.ends, stats.held_ms end
  local ends = math.max(1, cap / 3)
  return ends, ends * session_ms
end

-- This is also the write that a script begins with. If Redis refuses writes (full, read-only), the
-- script fails here, before anything is changed.
local function measure_start()
  local before = stats.measured_at or 0
  local since = before > 0 and now - before or 0
  -- Another number than any before, so that a client who knows it knows the others.
  stats.measured_at = math.floor(before) == now and before + 1 / 1024 or now
  if since > 0 then
    local active = size(ACTIVE)
    if active > 0 then
      local ends, held_ms = held()
      if not stats.ends then stats.ends = ends end
      stats.held_ms = held_ms + since * active
    end
    stats.waited_ms = (stats.waited_ms or 0) + since * size(WAITING)
  end
  save()
end

-- overdue_ms: for how long, in all, slots counted as held after they had expired, since no script
-- ran.
local function measure_ends(by, overdue_ms)
  local ends, held_ms = held()
  local kept = math.exp(-by / memory_ends())
  stats.ends = (ends + by) * kept
  stats.held_ms = math.max(held_ms - overdue_ms, 1) * kept
  stats.drops = (stats.drops or 0) * kept
  stats.waited_ms = (stats.waited_ms or 0) * kept
end

local function measure_drops(by)
  stats.drops = (stats.drops or 0) + by
end

-- Returns the relative error of the measured rate: that of a count that fades, and 0.3 of the part
-- of the memory that is not filled yet. Until then it holds a guess from the settings, and the
-- first visitors, who arrived together and leave together.
local function spread()
  local ends = held()
  local unproven = 0.3 * math.max(0, 1 - ends / memory_ends())
  return math.min(1, math.sqrt(0.5 / ends + unproven * unproven))
end
