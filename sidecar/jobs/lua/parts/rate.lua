-- @include "jobs/parts/state"
-- @include "limits/parts/algorithms"
-- @include "limits/parts/earliest_time"
-- Applies the rate limit of a target, by the algorithms of limits.
-- KEYS  12 the state of the rate limit
-- ARGV  4 the algorithm, or '' for no limit  5 calls per window  6 length of the window, µs
--       7 burst, or ''
local RATE, rate_ends
local ALGORITHM_NUMBERS = {
  [''] = 0, fixed_window = 1, sliding_window = 2, token_bucket = 3, leaky_bucket = 4,
}
local algorithm_number
local opens_at -- when calls may begin again after the algorithm was changed, µs

local function begin_rate(KEYS, ARGV)
  algorithm, state, free = ALGORITHMS[ARGV[4]], KEYS[12], nil
  algorithm_number = ALGORITHM_NUMBERS[ARGV[4]]
  RATE, LENGTH, BURST, rate_ends = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), nil
end

-- The state of one algorithm does not contain calls that another algorithm counted. So after a
-- change of the algorithm, no call begins until a window has passed since the last call.
local function open_rate()
  opens_at = 0
  if not algorithm then return end
  begin_after(algorithm.load())
  if target.counted_by and target.counted_by ~= algorithm_number then
    -- Workers of older versions do not store the time of the last call.
    opens_at = (target.last_call or math.min(target.last_fence or 0, now)) + LENGTH
  end
end

-- Counts a call and returns nil. If no call is allowed now, returns when the next call is, µs.
local function count_call()
  if algorithm and opens_at > now then return opens_at end
  target.counted_by = algorithm_number
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
