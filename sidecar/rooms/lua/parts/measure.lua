-- Measures what the wait estimate needs: how long a slot is held (held_ms / ends), and how often
-- waiting visitors give up (drops / waited_ms). The four numbers are exponentially decayed sums.
-- They decay with each session that ends, not with time, so they cover about the last 2 * cap + 20
-- sessions: the averaging window.
local function get_window_size()
  return 2 * cap + 20
end

-- Returns `ends` and `held_ms`. Before the first measurement, they are a guess: a third of the cap
-- (at least one) has ended, each session after session_duration.
local function read_hold_times()
  if stats.ends then return stats.ends, stats.held_ms end
  local ends = math.max(1, cap / 3)
  return ends, ends * session_ms
end

-- Adds the time since the last script to held_ms and waited_ms. This must be the first write of a
-- script: if Redis refuses writes (it is full or read-only), the script fails here and changes
-- nothing.
local function measure_elapsed()
  local before = stats.measured_at or 0
  local since = before > 0 and now - before or 0
  -- measured_at must differ from every earlier value, because a script that finds it unchanged
  -- concludes that all numbers in `stats` are unchanged.
  stats.measured_at = math.floor(before) == now and before + 1 / 1024 or now
  if since > 0 then
    local active = size(ACTIVE)
    if active > 0 then
      local ends, held_ms = read_hold_times()
      if not stats.ends then stats.ends = ends end
      stats.held_ms = held_ms + since * active
    end
    stats.waited_ms = (stats.waited_ms or 0) + since * size(WAITING)
  end
  save_numbers()
end

-- Counts sessions that ended. overdue_ms: for how long, in total, their slots were counted as held
-- although the sessions had expired, because no script ran.
local function measure_ended_sessions(number, overdue_ms)
  local ends, held_ms = read_hold_times()
  local kept = math.exp(-number / get_window_size())
  stats.ends = (ends + number) * kept
  stats.held_ms = math.max(held_ms - overdue_ms, 1) * kept
  stats.drops = (stats.drops or 0) * kept
  stats.waited_ms = (stats.waited_ms or 0) * kept
end

-- Counts visitors who gave up waiting.
local function measure_drops(number)
  stats.drops = (stats.drops or 0) + number
end

-- Returns the relative error of the measured rate, from two parts: the sampling error of an
-- exponentially decayed count, and a bias of up to 0.3 while the averaging window is not full.
-- Until then the rate rests on the guess from the settings and on the first visitors, who are no
-- fair sample: they were admitted together, so they leave together.
local function estimate_rate_error()
  local ends = read_hold_times()
  local bias = 0.3 * math.max(0, 1 - ends / get_window_size())
  return math.min(1, math.sqrt(0.5 / ends + bias * bias))
end
