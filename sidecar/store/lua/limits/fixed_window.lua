-- Calls of a rule by limits/parts/fixed_window.
-- KEYS, ARGV, RETURNS  limits/parts/batch
-- @include "limits/parts/batch"
-- @include "limits/parts/fixed_window"
-- @include "limits/parts/calls"
return answers()
