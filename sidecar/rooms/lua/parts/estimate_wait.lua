-- @include "rooms/parts/pace"
-- Estimates waits; docs/estimate.md derives the formulas. Visitors leave the queue by being called,
-- `rate` of them per ms, or by giving up, each with the probability `leaving` per ms.

local wait_ms
do
-- Returns in how many ms `people` visitors have left the queue.
local function drained_ms(people, rate, leaving)
  local x = leaving * people / rate
  if x < 1e-6 then return people / rate end -- log(1 + x) has no digits left
  return math.log(1 + x) / leaving
end

-- The inverse: returns how many of `people` are still in the queue after `ms`.
local function left_after(people, ms, rate, leaving)
  if leaving * ms < 1e-6 then return people - rate * ms end
  local stay = math.exp(-leaving * ms)
  return people * stay - rate / leaving * (1 - stay)
end

-- Returns the expected wait of a visitor with `ahead` people ahead, ms; nil if unknown.
function wait_ms(ahead)
  local pace = cache.pace or current_pace()
  if not pace.is_known then return nil end
  local calls, first_ms = ahead * pace.alive + 1 - pace.at_once, pace.opening_ms
  if calls <= 0 then return 0 end
  if first_ms == 0 then return drained_ms(calls, pace.rate, pace.leaving) end
  if pace.opening_rate > 0 then
    local wait = drained_ms(calls, pace.opening_rate, pace.leaving)
    if wait <= first_ms then return wait end
  end
  calls = left_after(calls, first_ms, pace.opening_rate, pace.leaving)
  return first_ms + drained_ms(math.max(calls, 0), pace.rate, pace.leaving)
end
end
