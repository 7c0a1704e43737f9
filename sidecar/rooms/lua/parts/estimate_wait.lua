-- @include "rooms/parts/pace"
-- Estimates waits by the formulas that docs/estimate.md derives. Visitors leave the queue because
-- they are called (`rate` visitors per ms) or give up (each with the probability `leaving` per ms).

local estimate_wait
do
-- Returns the time, in ms, until `people` visitors have left the queue.
local function estimate_drain_ms(people, rate, leaving)
  local x = leaving * people / rate
  if x < 1e-6 then return people / rate end -- log(1 + x) would round to 0
  return math.log(1 + x) / leaving
end

-- Returns how many of `people` visitors are still in the queue after `ms`: the inverse of
-- estimate_drain_ms().
local function estimate_left_after(people, ms, rate, leaving)
  if leaving * ms < 1e-6 then return people - rate * ms end
  local stay = math.exp(-leaving * ms)
  return people * stay - rate / leaving * (1 - stay)
end

-- Returns the expected wait, in ms, of a visitor with `ahead` visitors ahead; nil if it is unknown.
function estimate_wait(ahead)
  local pace = cache.pace or get_pace()
  if not pace.is_known then return nil end
  local calls, first_ms = ahead * pace.present_share + 1 - pace.free_slots, pace.transition_ms
  if calls <= 0 then return 0 end
  if first_ms == 0 then return estimate_drain_ms(calls, pace.rate, pace.leaving) end
  if pace.transition_rate > 0 then
    local wait = estimate_drain_ms(calls, pace.transition_rate, pace.leaving)
    if wait <= first_ms then return wait end
  end
  calls = estimate_left_after(calls, first_ms, pace.transition_rate, pace.leaving)
  return first_ms + estimate_drain_ms(math.max(calls, 0), pace.rate, pace.leaving)
end
end
