-- Calls of a rule by limits/parts/token_bucket.
-- KEYS, ARGV, RETURNS  limits/parts/batch
-- @include "limits/parts/batch"
-- @include "limits/parts/token_bucket"
-- @include "limits/parts/calls"
return answers()
