-- @include "limits/parts/head"
-- Defines variables of all algorithms. A script sets them before it calls load(). Each algorithm is
-- a table of functions:
--   load() reads the state; returns the time of the last call, and whether the limit paced it
--   find(cost, limit, base, permit) returns the first time >= base at which the call may proceed,
--     how much is in use then (with this call), out of how much, and when nothing is in use again.
--     Returns nil if the call may never proceed. Cost 0 asks how much is in use at `base`
--   take(at, after, cost, permit) counts a call at `at`; `after` is how much is in use with it
--   save(ends) writes the state, which is needed until `ends`
local state -- the Redis key of the state
local LENGTH -- the length of the window or the lease, µs
local BURST -- the size of a token bucket; nil: the same as the limit
local free -- the Redis key of released times (returned_times.lua); nil if the limit does not pace
