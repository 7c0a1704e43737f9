-- Tokens that come at limit / window, `burst` of them at most; a call takes as many as it costs.
-- @include "limits/parts/bucket"
local token_bucket = algorithm_by(function(cost, limit, base)
  local size = BURST or limit
  return fill(cost, limit, base, size, size) -- after the limit was lowered: empty, no less
end)
