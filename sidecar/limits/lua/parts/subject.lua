-- @include "limits/parts/head"
-- What an algorithm counts. A script sets these before it calls load(). Each algorithm has, as a
-- table of functions:
--   load() the last moment that it promised, and whether to a call that was to wait for it
--   find(cost, limit, base, permit) the first moment >= base at which so much may go, what is in
--     use then with it, of how much, when all is free again; nil: never. Cost 0: how things stand
--   take(at, in use, cost, permit) promises what was found; save(ends) writes it
local state -- the key
local LENGTH, BURST -- of the window or the lease, µs; nil: as the limit
local free -- the set of moments that were given back; nil: nobody is promised a moment to come
