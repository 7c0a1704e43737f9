-- Even spacing: the next call goes window / limit after this one, times what this one cost.
-- @include "limits/parts/bucket"
local leaky_bucket = algorithm_by(function(cost, limit, base)
  return fill(cost, limit, base, math.max(1, cost), math.huge)
end)
