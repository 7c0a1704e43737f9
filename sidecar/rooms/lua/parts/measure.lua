-- Measures what the wait estimate needs: how long a slot is held (held_ms / ends), and how often
-- waiting visitors give up (drops / waited_ms). These four numbers are exponentially decayed sums.
-- They decay with each session that ends, not with time, so they cover about the last 2 * cap + 20
-- sessions: the averaging window. `guessed` is the part of `ends` that is still the guess from the
-- settings.
local function get_window_size()
  return 2 * cap + 20
end

-- Returns `ends`, `held_ms` and `guessed`. Before the first measurement, these are a guess: as if a
-- third of the cap (at least one session) had ended, each session after session_duration. `guessed`
-- is 0 in a room that an older version has measured.
local function read_hold_times()
  if stats.ends then return stats.ends, stats.held_ms, stats.guessed or 0 end
  local ends = math.max(1, cap / 3)
  return ends, ends * session_ms, ends
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
      if not stats.ends then stats.ends, stats.guessed = ends, ends end
      stats.held_ms = held_ms + since * active
    end
    stats.waited_ms = (stats.waited_ms or 0) + since * size(WAITING)
  end
  save_numbers()
end

-- Counts sessions that ended. `overdue_ms`: the total time for which their slots were counted as
-- held although the sessions had expired, because no script ran.
local function measure_ended_sessions(number, overdue_ms)
  local ends, held_ms, guessed = read_hold_times()
  local kept = math.exp(-number / get_window_size())
  stats.guessed = guessed * kept
  stats.ends = (ends + number) * kept
  stats.held_ms = math.max(held_ms - overdue_ms, 1) * kept
  stats.drops = (stats.drops or 0) * kept
  stats.waited_ms = (stats.waited_ms or 0) * kept
end

-- Counts visitors who gave up waiting.
local function measure_drops(number)
  stats.drops = (stats.drops or 0) + number
end

local estimate_rate_error
do
local MIN_ENDS = 8 -- ten ended sessions, decayed as in the smallest room

-- Returns whether the rate of calls is not measured yet: fewer than about ten sessions have ended,
-- or more than a third of `ends` or of `held_ms` is the guess from the settings. If a rate limit is
-- far below the guess, no measurement is needed.
local function is_measuring(ends, held_ms, guessed)
  if per_minute and per_minute / 60000 * held_ms / ends * 2 < cap then return false end
  return ends - guessed < MIN_ENDS or 3 * guessed > ends or 3 * guessed * session_ms > held_ms
end

-- Returns the relative error of the measured rate, or 1 while the rate is being measured. The error
-- has two parts: the sampling error of an exponentially decayed count, and a bias. Until the
-- averaging window is full, the rate depends on the guess and on the first visitors, who are no
-- fair sample, because they were admitted together and so leave together.
function estimate_rate_error()
  local ends, held_ms, guessed = read_hold_times()
  if is_measuring(ends, held_ms, guessed) then return 1 end
  local missing_share = 1 - ends / get_window_size()
  local guessed_share = math.min(guessed * session_ms / held_ms, 0.5)
  local bias = math.max(0.1 * missing_share, 0.6 * guessed_share)
  return math.min(1, math.sqrt(0.5 / ends + bias * bias))
end
end
