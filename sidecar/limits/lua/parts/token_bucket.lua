-- Allows a call if the bucket has a token for each unit of its cost. The bucket holds at most
-- `burst` tokens and is refilled at the rate limit / window.
-- @include "limits/parts/bucket"
local token_bucket = make_algorithm(function(cost, limit, base)
  local size = BURST or limit
  -- After the limit was lowered, the bucket has no tokens, but not a negative number of tokens.
  return add_to_bucket(cost, limit, base, size, size)
end)
