-- @include "shared/wait"
-- How fast the line moves: calls and drops, each forgotten exponentially, over the time
-- in which somebody waited, forgotten alike. See core/estimate.py for the formula.
local MEMORY_MS = 600000

local function measure_start()
  local since = now - (stats.measured_at or now)
  stats.measured_at = now
  if since <= 0 then return end
  local kept = math.exp(-since / MEMORY_MS)
  stats.calls = (stats.calls or 0) * kept
  stats.drops = (stats.drops or 0) * kept
  stats.busy = (stats.busy or 0) * kept
  if redis_call('ZCARD', WAITING) > 0 then
    stats.busy = stats.busy + MEMORY_MS * (1 - kept)
  end
end

local function measure_calls(by)
  stats.calls = (stats.calls or 0) + by
end

local function measure_drops(by)
  stats.drops = (stats.drops or 0) + by
end
