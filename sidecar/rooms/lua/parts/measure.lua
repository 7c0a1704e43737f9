-- Measures what the estimate needs: how long a slot is held (held_ms / ends) and how often a
-- visitor gives up waiting (drops / waited_ms). Each session that ends reduces all four numbers a
-- little, so the numbers cover about the last 2 * cap + 20 sessions. They do not fade with time.
local function memory_ends()
  return 2 * cap + 20
end

-- Returns ends and held_ms. Before the first measurement, it returns a guess: as many ends as a
-- third of the cap (at least one), each after session_duration.
local function hold_times()
  if stats.ends then return stats.ends, stats.held_ms end
  local ends = math.max(1, cap / 3)
  return ends, ends * session_ms
end

-- Adds the time since the last script to held_ms and waited_ms. A script calls this before
-- any other write: if Redis refuses writes (full or read-only), the script fails here and changes
-- nothing.
local function measure_start()
  local before = stats.measured_at or 0
  local since = before > 0 and now - before or 0
  -- measured_at must differ from any value before, because it tells whether the numbers in `stats`
  -- are still the same.
  stats.measured_at = math.floor(before) == now and before + 1 / 1024 or now
  if since > 0 then
    local active = size(ACTIVE)
    if active > 0 then
      local ends, held_ms = hold_times()
      if not stats.ends then stats.ends = ends end
      stats.held_ms = held_ms + since * active
    end
    stats.waited_ms = (stats.waited_ms or 0) + since * size(WAITING)
  end
  save()
end

-- Counts sessions that ended. overdue_ms: for how long, in total, their slots were counted as held
-- although they had expired, because no script ran.
local function measure_ends(by, overdue_ms)
  local ends, held_ms = hold_times()
  local kept = math.exp(-by / memory_ends())
  stats.ends = (ends + by) * kept
  stats.held_ms = math.max(held_ms - overdue_ms, 1) * kept
  stats.drops = (stats.drops or 0) * kept
  stats.waited_ms = (stats.waited_ms or 0) * kept
end

-- Counts visitors who gave up waiting.
local function measure_drops(by)
  stats.drops = (stats.drops or 0) + by
end

-- Returns the relative error of the measured rate. It has two parts: the statistical error of a
-- count that fades, and 0.3 times the share of the memory that is not filled yet. Until the memory
-- is full, it has a guess from the settings, and the first visitors, who came and leave together.
local function rate_error()
  local ends = hold_times()
  local unproven = 0.3 * math.max(0, 1 - ends / memory_ends())
  return math.min(1, math.sqrt(0.5 / ends + unproven * unproven))
end
