-- @include "limits/parts/present"
-- The rate of a target, by the algorithm of the limits that was included before.
local rate_ends

local function open_rate()
  begin_after(load())
end

-- Counts a call; or says when one may be made.
local function count_call()
  local at, after, _, ends = find(1, RATE, base)
  if at > present then return at end
  take(at, after, 1)
  base, rate_ends = math.max(base, at), ends
end

-- What went is kept for longer than these settings need it: others may come that do.
local KEPT_US = 3600000000
local function close_rate()
  if rate_ends then save(math.max(rate_ends, now + KEPT_US)) end
end

local function calls_in_use()
  open_rate()
  local _, after = find(0, RATE, base)
  return math.ceil(after)
end
