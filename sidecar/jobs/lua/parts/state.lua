-- @include "jobs/parts/head"
-- @include "visitors/arrival"
-- @include "visitors/numbers"
-- The numbers in a target's state. finish_state() writes those that have changed.
local NUMBERS = {
  'ready', -- when calls may begin, µs; missing if Redis is new or was emptied
  'last_order', 'last_fence',
  'last_call', -- when the last call was claimed, µs
  'counted_by', -- which algorithm has counted the last call (ALGORITHM_NUMBERS); 0: none
  'failures', -- how many calls have failed in a row
  'opened', -- how often in a row the breaker opened; 0: it is closed
  'open_until', -- when the open breaker allows trial calls, µs
  'held_until', -- when calls may begin again after a Retry-After, µs
  'mean_us', -- the moving average of the durations of answered calls, µs
  'runner', -- when a worker last asked for offline jobs, µs, updated once a second
  'called', 'completed', 'failed', 'retried', 'lost', 'expired', -- counters since Redis was empty
  'minute', -- the minute of the latest sample in MINUTES
}
local MINUTES_KEPT = 1440
local loaded, target -- the numbers as they were read, and as the script changes them
local counters_before -- the counters of a sample, when the script began
-- How far in the future each time may be; a stored time may be later if the clock jumped back.
local MAX_US = {
  open_until = 60000000, held_until = 3600000000, ready = 86400000000, last_call = 0,
}

-- Returns the counters of a sample as text: the numbers of completed, failed and retried calls.
local function format_counters()
  return int(target.completed or 0) .. ' ' .. int(target.failed or 0) .. ' '
    .. int(target.retried or 0)
end

local function begin_state(KEYS, ARGV)
  begin_target(KEYS, ARGV)
  loaded, target = queue.load_numbers(STATE, NUMBERS)
  for name, max_us in pairs(MAX_US) do
    if target[name] then target[name] = math.min(target[name], now + max_us) end
  end
  counters_before = format_counters()
end

local function count(name, by)
  target[name] = (target[name] or 0) + (by or 1)
end

-- When the counters change for the first time in a minute, stores the counters from before. So the
-- first sample after a minute contains the counters at the end of that minute.
local function store_sample()
  local minute = math.floor(now / 60000000)
  if minute == target.minute or format_counters() == counters_before then return end
  target.minute = minute
  redis_call('LPUSH', MINUTES, int(minute) .. ' ' .. counters_before)
  redis_call('LTRIM', MINUTES, 0, MINUTES_KEPT - 1)
end

local function finish_state()
  store_sample()
  queue.write_all('HSET', STATE, queue.changed_numbers(NUMBERS, loaded, target))
end

-- Returns the fencing number of a new lock or permit. Each number is higher than the last.
local function make_fence()
  target.last_fence = queue.next_number(target.last_fence, now)
  return target.last_fence
end
