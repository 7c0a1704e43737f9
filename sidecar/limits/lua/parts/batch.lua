-- @include "limits/parts/head"
-- A batch of calls of one rule, key by key.
-- KEYS    1 values; then for each key: state [permits [free booked]], as far as they are needed
-- ARGV    2 the window's length, or the lease's  3 burst, or ''
--         4 the longest wait; 0: no call waits  5 how long an id is remembered
--         6 'look' to change nothing, or ''  7 how many words a call has: 1 cost, 2 id
--         8 how many keys; then all their names; then for each: its limit by the file (-1: none),
--           how many calls it has, and their words. An id that the replica made begins with ~
-- RETURNS now; then for each key its limit (-1: none), and for each of its calls: the moment (when
--         to ask again if refused; 0: never), what could go at once after it (-1: refused), when
--         all is free again
local VALUES
local LENGTH, BURST, MAX_WAIT, REMEMBERED, LOOKS, WORDS, COUNT, WIDTH
local function begin_batch(KEYS, ARGV)
  begin(ARGV)
  VALUES = KEYS[1]
  LENGTH, BURST, MAX_WAIT = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
  REMEMBERED, LOOKS, WORDS = tonumber(ARGV[5]), ARGV[6] ~= '', tonumber(ARGV[7])
  COUNT = tonumber(ARGV[8])
  WIDTH = (#KEYS - 1) / COUNT
end
-- Of the key whose calls are being answered.
local state, permits, free, booked
