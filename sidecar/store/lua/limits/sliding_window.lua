-- Calls of a rule by limits/parts/sliding_window.
-- KEYS, ARGV, RETURNS  limits/parts/batch
-- @include "limits/parts/batch"
-- @include "limits/parts/sliding_window"
-- @include "limits/parts/calls"
return answers()
