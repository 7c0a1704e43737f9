-- @include "limits/parts/algorithm_state"
-- Finds the earliest time that a call can get.
-- If the clock has gone back by at most MAX_STEP_BACK µs since the last call, that call's time is
-- taken as the current time, so that the clock neither allows more calls nor refuses one. This does
-- not apply if the limit paces calls now or did so at the last call, because the time of that call
-- may then be in the future.
local MAX_STEP_BACK = 1000000
local present, base -- the current time as just explained, and the earliest time for a call, µs

-- Sets `present` and `base`. The arguments are the results of an algorithm's load().
local function begin_after(last, is_paced)
  local has_gone_back = last > now and last - now <= MAX_STEP_BACK and not (free or is_paced)
  present = has_gone_back and last or now
  base = math.max(present, last)
end
