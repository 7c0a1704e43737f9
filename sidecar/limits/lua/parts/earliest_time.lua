-- @include "limits/parts/algorithm_state"
-- The earliest time that a call may be given.
-- If the clock has gone back by at most MAX_STEP_BACK µs, time counts as standing still, so that no
-- call is granted or refused because of the clock. (This rule does not apply if the limit paces
-- calls, or did: then the latest time may really be in the future.)
local MAX_STEP_BACK = 1000000
local present, base -- the current time by this rule, and the earliest time for a call, µs

-- Sets `present` and `base`. Its arguments are the results of an algorithm's load().
local function begin_after(last, is_paced)
  local has_gone_back = last > now and last - now <= MAX_STEP_BACK and not (free or is_paced)
  present = has_gone_back and last or now
  base = math.max(present, last)
end
