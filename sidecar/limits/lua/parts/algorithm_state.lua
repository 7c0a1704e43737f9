-- @include "limits/parts/head"
-- The state that an algorithm works on. A script sets these variables before it calls load(). Each
-- algorithm is a table of functions:
--   load() returns the latest time that a call was given, and whether that call was paced
--   find(cost, limit, base, permit) returns the first time >= base at which the call may go, how
--     much is in use then (this call included), out of how much, and when all of it is free again.
--     Returns nil if the call may never go. Cost 0 asks for the use at `base`
--   take(at, after, cost, permit) counts the call; `after` is how much is in use then
--   save(ends) writes the state, which is needed until `ends`
local state -- the key
local LENGTH, BURST -- of the window or the lease, µs; the burst, nil: as the limit
local free -- the key of the returned times; nil if the limit does not pace
