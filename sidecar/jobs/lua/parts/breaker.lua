-- @include "jobs/parts/state"
-- Opens for a target that fails again and again: no calls for a while, each time longer. Then one
-- call at a time is a trial.
local FIRST_US = 5000000

local function breaker()
  if (target.opened or 0) == 0 then return 'closed' end
  return target.open_until > now and 'open' or 'trial'
end

local function open_breaker()
  count('opened')
  target.open_until = now + math.min(MOST_US.open_until, FIRST_US * 2 ^ (target.opened - 1))
end

-- Returns true if the breaker was open or on trial.
local function close_breaker()
  local was_open = breaker() ~= 'closed'
  target.failures, target.opened, target.open_until = 0, 0, 0
  return was_open
end

local function note_failure(is_trial, break_after)
  count('failures')
  local breaker_state = breaker()
  if breaker_state == 'closed' and target.failures >= break_after
    or breaker_state == 'trial' and is_trial then
    open_breaker()
  end
end

-- Smooths the duration of calls: the last ones count most.
local function measure(took_us)
  target.mean_us = target.mean_us or took_us
  target.mean_us = target.mean_us + (took_us - target.mean_us) / 10
end
