-- @include "limits/parts/subject"
-- The earliest time that a call may be given.
-- If the clock has gone back by at most BACK µs, time counts as standing still: no call is granted
-- or refused because of it. (This rule does not apply if the limit paces calls, or did: then the
-- latest time may really be in the future.)
local BACK = 1000000
local present, base

-- Sets `present` and `base`. Its arguments are the results of an algorithm's load().
local function begin_after(last, is_paced)
  local is_back = last > now and last - now <= BACK and not (free or is_paced)
  present = is_back and last or now
  base = math.max(present, last)
end
