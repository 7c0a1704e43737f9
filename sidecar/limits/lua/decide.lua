-- Decides on a batch of calls of one limit, key by key.
-- KEYS    1 values; then for each key: state [permits [free booked]], those that are needed
-- ARGV    2 the algorithm  3 the window's length, or the lease's  4 burst, or ''
--         5 the longest wait; 0: no call waits  6 how long an id is remembered
--         7 1 to change nothing  8 how many arguments a call has: 1 cost, 2 id
--         9 how many keys; then all their names; then for each: its configured limit (-1: none),
--           how many calls it has, and their arguments. An id that the replica made begins with ~
-- RETURNS now; then for each key its limit (-1: none), and for each of its calls: the moment (when
--         to ask again if refused; 0: never), the highest cost of a call right after it (-1:
--         refused), when the whole limit is free again
-- @include "limits/parts/calls"
local FIRST_NAME = 10

local function run(KEYS, ARGV)
  begin(ARGV)
  local VALUES = KEYS[1]
  algorithm = ALGORITHMS[ARGV[2]]
  LENGTH, BURST, MAX_WAIT = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
  REMEMBERED, LOOKS = tonumber(ARGV[6]), ARGV[7] == '1'
  local words, number = tonumber(ARGV[8]), tonumber(ARGV[9])
  local width = (#KEYS - 1) / number
  local word = FIRST_NAME + number
  local limits = redis_call('HMGET', VALUES, unpack(ARGV, FIRST_NAME, word - 1))
  local replies = {now}
  for n = 1, number do
    local key = 1 + (n - 1) * width
    state, permits = KEYS[key + 1], width > 1 and KEYS[key + 2]
    free, booked = width > 2 and KEYS[key + 3], width > 2 and KEYS[key + 4]
    local limit, calls = tonumber(limits[n] or ARGV[word]), tonumber(ARGV[word + 1])
    replies[#replies + 1] = limit
    word = word + 2
    open_permits()
    if limit >= 0 then begin_after(algorithm.load()) else begin_after(0) end
    saved_until = nil
    for _ = 1, calls do
      local at, left, ends = 0, 0, 0
      if limit >= 0 then
        at, left, ends = answer(tonumber(ARGV[word]), words > 1 and ARGV[word + 1] or '', limit)
      end
      local i = #replies
      replies[i + 1], replies[i + 2], replies[i + 3] = at, left, ends
      word = word + words
    end
    if saved_until then algorithm.save(saved_until) end
    close_permits()
  end
  return replies
end
