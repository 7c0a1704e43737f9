-- @include "jobs/parts/head"
-- What the algorithms of limits/parts go by.
-- KEYS  11 the state of the rate
-- ARGV  4 calls in each window  5 its length, µs  6 burst, or ''
local RATE, LENGTH, BURST = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local state = KEYS[11]
local free -- nobody is promised a moment to come
