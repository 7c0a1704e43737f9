-- @include "rooms/parts/heartbeat_due"
-- @include "rooms/parts/measure"
-- @include "rooms/parts/rate"
-- Estimates how fast the queue moves; each expected wait is computed from this
-- (rooms/lua/parts/estimate_wait.lua).

local current_pace
do
-- Returns how often a waiting visitor gives up, per ms, and the share of the visitors in the queue
-- who are still there. Giving up is noticed only once a heartbeat has been overdue for
-- heartbeat_timeout, and heartbeats are up to half that time apart.
local function leave_rate(memory_ms)
  local waiting = size(WAITING)
  local silent = redis_call('ZCOUNT', DUE, overdue_range())
  local lag_ms = 1.25 * timeout_ms
  -- It is not known yet who has given up within the last `lag_ms`, so the time waited since then is
  -- subtracted; but at most half of all, so that the first drops do not count for too much.
  local waited_ms, fresh = stats.waited_ms or 0, math.exp(-lag_ms / memory_ms)
  local seen_ms = (waited_ms - waiting * memory_ms * (1 - fresh)) / fresh
  seen_ms = math.max(seen_ms, waited_ms / 2)
  local leaving = ((stats.drops or 0) + silent) / (seen_ms + 10 * session_ms)
  -- Some visitors in the queue have left: the silent ones, and others who are not noticed yet.
  local head = redis_call('ZRANGE', WAITING, '0', '0', 'WITHSCORES')
  local unseen_ms = math.min(lag_ms, now - tonumber(head[2] or 0) / 1000)
  return leaving, (1 - silent / math.max(1, waiting)) / (1 + leaving * unseen_ms)
end

-- In a room that is exactly full, each session that ends makes one call. If the cap was lowered,
-- the room must first empty to the cap; if new_users_per_minute limits how fast it fills, it first
-- fills at that rate. Returns how long that takes, ms, and the rate of calls until then.
local function opening(hold_ms, limit)
  local active = size(ACTIVE)
  if active > cap then return hold_ms * math.log(active / cap), 0 end
  local most = limit * hold_ms
  if active == cap or most <= cap or most == math.huge then return 0, 0 end
  return hold_ms * math.log((most - active) / (most - cap)), limit
end

local function find_pace()
  local ends, held_ms = hold_times()
  local hold_ms = held_ms / ends
  local rate = cap / hold_ms
  local limit = (per_minute or math.huge) / 60000
  local pace = {is_known = true, rate = math.min(rate, limit)}
  pace.leaving, pace.alive = leave_rate(memory_ends() / pace.rate)
  pace.opening_ms, pace.opening_rate = opening(hold_ms, limit)
  pace.at_once = free_slots()
  return pace
end

-- Returns the pace. It is computed once in a batch, and again after a newcomer took a free slot. A
-- library caches it for PACE_MS, as long as the same number of visitors is inside and about the
-- same number waits.
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
  elseif per_minute and pace.counted_at ~= now then -- tokens may have been spent since
    pace.at_once, pace.counted_at = free_slots(), now
  end
  cache.pace = pace
  return pace
end
end
