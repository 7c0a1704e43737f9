-- @include "shared/measure"
-- @include "shared/rate"
-- The expected wait; docs/estimate.md derives the formulas. A person in line leaves it by
-- being called, `rate` of them per ms, or by giving up, each `leaving` times per ms.

-- How long until `people` are gone, ms.
local function drained_ms(people, rate, leaving)
  local x = leaving * people / rate
  if x < 1e-6 then return people / rate end -- log(1 + x) has no digits left
  return math.log(1 + x) / leaving
end

-- The reverse: how many of them are left after so long.
local function left_after(people, ms, rate, leaving)
  if leaving * ms < 1e-6 then return people - rate * ms end
  local stay = math.exp(-leaving * ms)
  return people * stay - rate / leaving * (1 - stay)
end

-- Giving up is seen when a heartbeat has been overdue for heartbeat_timeout, and the
-- heartbeat itself comes up to half a timeout later.
local function giving_up(memory_ms)
  local waiting = size(WAITING)
  local silent = redis_call('ZCOUNT', DUE, overdue_range())
  local lag_ms = 1.25 * timeout_ms
  -- The latest waiting cannot have shown yet who gives up. It is at most half of all, or
  -- those seen at once would count for too much.
  local waited_ms, fresh = stats.waited_ms or 0, math.exp(-lag_ms / memory_ms)
  local seen_ms = (waited_ms - waiting * memory_ms * (1 - fresh)) / fresh
  seen_ms = math.max(seen_ms, waited_ms / 2)
  local leaving = ((stats.drops or 0) + silent) / (seen_ms + 10 * session_ms)
  -- Some in line are gone by now: those who are silent, and those not yet known to be.
  local head = redis_call('ZRANGE', WAITING, 0, 0, 'WITHSCORES')
  local unseen_ms = math.min(lag_ms, now - tonumber(head[2] or 0) / 1000)
  return leaving, (1 - silent / math.max(1, waiting)) / (1 + leaving * unseen_ms)
end

-- Calls follow ends only in a room that is just full. One whose cap was lowered has to
-- empty first; one that new_users_per_minute keeps from filling at once fills at that
-- rate. Returns how long that takes, and the rate meanwhile.
local function opening(hold_ms, limit)
  local active = size(ACTIVE)
  if active > cap then return hold_ms * math.log(active / cap), 0 end
  local most = limit * hold_ms
  if active == cap or most <= cap or most == math.huge then return 0, 0 end
  return hold_ms * math.log((most - active) / (most - cap)), limit
end

-- The same for everybody in a batch, so found once; anew after a newcomer took a free slot.
local function find_pace()
  found.pace = {is_known = phase == OPEN and cap >= 1 and not room.queue_all}
  if not found.pace.is_known then return found.pace end
  flush()
  local ends, held_ms = held()
  local hold_ms = held_ms / ends
  local rate = cap / hold_ms
  local limit = (per_minute or math.huge) / 60000
  local pace = {is_known = true, rate = math.min(rate, limit)}
  pace.leaving, pace.alive = giving_up(memory_ends() / pace.rate)
  pace.opening_ms, pace.opening_rate = opening(hold_ms, limit)
  pace.at_once = at_once()
  found.pace = pace
  return pace
end

-- The wait of somebody with `ahead` people before them, ms; nil if it cannot be known.
local function wait_ms(ahead)
  local pace = found.pace or find_pace()
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
