-- @include "jobs/parts/state"
-- @include "limits/parts/algorithms"
-- @include "limits/parts/earliest_time"
-- The rate limit of a target. It uses the algorithms of limits.
-- KEYS  11 the state of the rate limit
-- ARGV  4 the algorithm, or '' for no limit  5 calls per window  6 length of the window, µs
--       7 burst, or ''
local RATE, rate_ends

local function begin_rate(KEYS, ARGV)
  algorithm, state, free = ALGORITHMS[ARGV[4]], KEYS[11], nil
  RATE, LENGTH, BURST, rate_ends = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), nil
end

local function open_rate()
  if algorithm then begin_after(algorithm.load()) end
end

-- Counts a call and returns nil. If none is allowed now, returns when the next one is, µs.
local function count_call()
  if not algorithm then return nil end
  local at, after, _, ends = algorithm.find(1, RATE, base)
  if at > present then return at end
  algorithm.take(at, after, 1)
  base, rate_ends = math.max(base, at), ends
end

-- The state expires later than the current settings need, because the settings may change.
local KEEP_US = 3600000000
local function close_rate()
  if rate_ends then algorithm.save(math.max(rate_ends, now + KEEP_US)) end
end

local function count_calls_in_use()
  if not algorithm then return 0 end
  open_rate()
  local _, after = algorithm.find(0, RATE, base)
  return math.ceil(after)
end
