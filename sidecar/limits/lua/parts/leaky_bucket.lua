-- Even spacing: the next call may go cost * window / limit after this one.
-- @include "limits/parts/bucket"
local leaky_bucket = make_algorithm(function(cost, limit, base)
  return fill(cost, limit, base, math.max(1, cost), math.huge)
end)
