-- @include "limits/parts/head"
-- The key that an algorithm counts. A script sets these before it calls load(). Each algorithm is a
-- table of functions:
--   load() returns the last moment that was given to a call, and whether that call was paced
--   find(cost, limit, base, permit) returns the first moment >= base at which the call may go, how
--     much is in use then, of how much, and when all is free again; nil: never. Cost 0: as of now
--   take(at, in use, cost, permit) counts the call; save(ends) writes the state
local state -- the key
local LENGTH, BURST -- of the window or the lease, µs; the burst, nil: as the limit
local free -- the set of moments that were given back; nil: the limit does not pace
