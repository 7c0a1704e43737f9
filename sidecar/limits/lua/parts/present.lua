-- @include "limits/parts/subject"
-- The earliest moment that a call may be given.
-- A clock that went back by at most BACK µs counts as standing still: it neither grants more nor
-- refuses a call. (If the limit paces, or did, the last moment may really be in the future.)
local BACK = 1000000
local present, base

-- Takes what load() of an algorithm returned.
local function begin_after(last, is_paced)
  local is_back = last > now and last - now <= BACK and not (free or is_paced)
  present = is_back and last or now
  base = math.max(present, last)
end
