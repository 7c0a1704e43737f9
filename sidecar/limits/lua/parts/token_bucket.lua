-- A bucket of at most `burst` tokens, filled at the rate limit / window. A call takes as many
-- tokens as it costs.
-- @include "limits/parts/bucket"
local token_bucket = make_algorithm(function(cost, limit, base)
  local size = BURST or limit
  return fill(cost, limit, base, size, size) -- after the limit was lowered: empty, not in debt
end)
