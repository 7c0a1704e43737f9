-- @include "rooms/parts/heartbeat_due"
-- @include "rooms/parts/measure"
-- @include "rooms/parts/rate"
-- How the queue moves, of which each wait is made (rooms/lua/parts/estimate_wait.lua).

local current_pace
do
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
  -- Some in the queue are gone by now: those who are silent, and those not yet known to be.
  local head = redis_call('ZRANGE', WAITING, '0', '0', 'WITHSCORES')
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

local function find_pace()
  local ends, held_ms = held()
  local hold_ms = held_ms / ends
  local rate = cap / hold_ms
  local limit = (per_minute or math.huge) / 60000
  local pace = {is_known = true, rate = math.min(rate, limit)}
  pace.leaving, pace.alive = giving_up(memory_ends() / pace.rate)
  pace.opening_ms, pace.opening_rate = opening(hold_ms, limit)
  pace.at_once = at_once()
  return pace
end

-- The same for everybody in a batch, so found once; anew after a newcomer took a free slot. A
-- library keeps it for a moment, while as many are inside and about as many wait.
local PACE_MS = 100
local UNKNOWN = {is_known = false}
function current_pace()
  if phase ~= OPEN or cap < 1 or room.queue_all then return UNKNOWN end
  local pace, waits, inside = room.pace, size(WAITING), size(ACTIVE)
  if not pace or math.abs(pace.waiting - waits) * 100 > waits or pace.active ~= inside
    or pace.cap ~= cap or pace.per_minute ~= per_minute or pace.born ~= stats.born
    or now < pace.at or now - pace.at >= PACE_MS then
    pace = find_pace()
    pace.at, pace.waiting, pace.active = now, waits, inside
    pace.cap, pace.per_minute, pace.born = cap, per_minute, stats.born
    pace.counted_at = now
    room.pace = pace
  elseif per_minute and pace.counted_at ~= now then -- tokens are spent meanwhile
    pace.at_once, pace.counted_at = at_once(), now
  end
  found.pace = pace
  return pace
end
end
