-- Calls of a rule by limits/parts/leaky_bucket.
-- KEYS, ARGV, RETURNS  limits/parts/batch
-- @include "limits/parts/batch"
-- @include "limits/parts/leaky_bucket"
-- @include "limits/parts/calls"
return answers()
