-- Even spacing: the next call goes window / limit after this one, times what this one cost.
-- @include "limits/parts/bucket"
local function find(cost, limit, base)
  return fill(cost, limit, base, math.max(1, cost), math.huge)
end
