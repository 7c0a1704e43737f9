-- Spaces calls evenly: the next call may be made cost * window / limit after this call.
-- @include "limits/parts/bucket"
local leaky_bucket = make_algorithm(function(cost, limit, base)
  return add_to_bucket(cost, limit, base, math.max(1, cost), math.huge)
end)
