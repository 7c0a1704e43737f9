-- The algorithms, by their names in the settings. limits/parts/algorithm_state describes their
-- functions.
-- @include "limits/parts/concurrency"
-- @include "limits/parts/fixed_window"
-- @include "limits/parts/leaky_bucket"
-- @include "limits/parts/sliding_window"
-- @include "limits/parts/token_bucket"
local ALGORITHMS = {
  concurrency = concurrency,
  fixed_window = fixed_window,
  leaky_bucket = leaky_bucket,
  sliding_window = sliding_window,
  token_bucket = token_bucket,
}
local algorithm
