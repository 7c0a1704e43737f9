-- Decides on a batch of calls of one limit, grouped by rate-limited key.
-- KEYS    1 the hash of limits set at run time; then for each rate-limited key: state, permits,
--         free and booked; or only state, or state and permits, if the limit needs no more
-- ARGV    2 the algorithm
--         3 the length of the window, or of a lease
--         4 burst, or ''
--         5 the longest wait (0: no call waits)
--         6 how long an id is remembered
--         7 1 to change nothing in Redis
--         8 how many arguments a call has: 1 (its cost) or 2 (its cost and id). An id that the
--           replica generated begins with ~
--         9 the number of rate-limited keys
--         then the name of each key
--         then for each key: its configured limit (-1: none), the number of its calls, and the
--         arguments of these calls
-- RETURNS now
--         then for each rate-limited key: its limit (-1: none), and for each of its calls what
--         decide() returns (limits/parts/calls)
-- @include "limits/parts/calls"
local FIRST_NAME = 10

local function run(KEYS, ARGV)
  begin(ARGV)
  local VALUES = KEYS[1]
  algorithm = ALGORITHMS[ARGV[2]]
  LENGTH, BURST, MAX_WAIT = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
  MEMORY_US, IS_DRY_RUN = tonumber(ARGV[6]), ARGV[7] == '1'
  local argument_count, key_count = tonumber(ARGV[8]), tonumber(ARGV[9])
  local keys_per_key = (#KEYS - 1) / key_count
  local argument = FIRST_NAME + key_count
  local limits = redis_call('HMGET', VALUES, unpack(ARGV, FIRST_NAME, argument - 1))
  local replies = {now}
  for n = 1, key_count do
    local key = 1 + (n - 1) * keys_per_key
    state, permits = KEYS[key + 1], keys_per_key > 1 and KEYS[key + 2]
    free, booked = keys_per_key > 2 and KEYS[key + 3], keys_per_key > 2 and KEYS[key + 4]
    local limit, calls = tonumber(limits[n] or ARGV[argument]), tonumber(ARGV[argument + 1])
    replies[#replies + 1] = limit
    argument = argument + 2
    reset_permits()
    reset_returned_times()
    if limit >= 0 then begin_after(algorithm.load()) else begin_after(0) end
    saved_until = nil
    for _ = 1, calls do
      local at, left, ends = 0, 0, 0
      if limit >= 0 then
        at, left, ends = decide(tonumber(ARGV[argument]),
          argument_count > 1 and ARGV[argument + 1] or '', limit)
      end
      local i = #replies
      replies[i + 1], replies[i + 2], replies[i + 3] = at, left, ends
      argument = argument + argument_count
    end
    if saved_until then algorithm.save(saved_until) end
    clean_up_permits()
  end
  return replies
end
