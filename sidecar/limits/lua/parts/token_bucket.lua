-- Allows a call that costs no more than the tokens in a bucket, which holds at most `burst` tokens
-- and is filled at the rate limit / window.
-- @include "limits/parts/bucket"
local token_bucket = make_algorithm(function(cost, limit, base)
  local size = BURST or limit
  -- After the limit was lowered the bucket is empty, but not in debt.
  return add_to_bucket(cost, limit, base, size, size)
end)
