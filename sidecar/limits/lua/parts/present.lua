-- @include "limits/parts/subject"
-- From which moment on something may be promised.
-- A clock that went back by so little is taken to stand still: nothing more is granted by that, and
-- nobody refused for it. (Where the rule paces, or did, the last moment may well be to come.)
local BACK = 1000000
local present, base

-- Goes by what load() of an algorithm returned.
local function begin_after(last, is_paced)
  local is_back = last > now and last - now <= BACK and not (free or is_paced)
  present = is_back and last or now
  base = math.max(present, last)
end
