-- @include "jobs/parts/state"
-- The circuit breaker of a target. It opens after break_after failures in a row. Then no calls are
-- made for FIRST_OPEN_US, and for twice as long each time it opens again (at most a minute). After
-- that, one call at a time is made as a trial.
local FIRST_OPEN_US = 5000000

local function read_breaker_state()
  if (target.opened or 0) == 0 then return 'closed' end
  return target.open_until > now and 'open' or 'trial'
end

local function open_breaker()
  count('opened')
  target.open_until = now + math.min(MAX_US.open_until, FIRST_OPEN_US * 2 ^ (target.opened - 1))
end

-- Closes the breaker. Returns true if it was not closed before.
local function close_breaker()
  local was_open = read_breaker_state() ~= 'closed'
  target.failures, target.opened, target.open_until = 0, 0, 0
  return was_open
end

local function record_failure(is_trial, break_after)
  count('failures')
  local breaker_state = read_breaker_state()
  if breaker_state == 'closed' and target.failures >= break_after
    or breaker_state == 'trial' and is_trial then
    open_breaker()
  end
end

-- Adds a call's duration to the exponential moving average.
local function record_duration(took_us)
  target.mean_us = target.mean_us or took_us
  target.mean_us = target.mean_us + (took_us - target.mean_us) / 10
end
