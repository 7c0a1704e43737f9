-- Counts calls in fixed windows by Redis' clock: [k * length, (k + 1) * length) for each k.
-- @include "limits/parts/time_and_use"
local fixed_window = make_algorithm(function(cost, limit, base)
  if cost > limit then return nil end
  local start = base - base % LENGTH
  local after = cost + (last >= start and used or 0)
  if after == 0 then return base, 0, limit, base end
  if cost == 0 or after <= limit then return base, after, limit, start + LENGTH end
  return start + LENGTH, cost, limit, start + 2 * LENGTH
end)
