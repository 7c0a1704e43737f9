-- @include "rooms/parts/heartbeat_due"
-- @include "rooms/parts/measure"
-- @include "rooms/parts/rate"
-- Estimates the pace of the queue: how fast visitors are called, and how many give up. From the
-- pace, rooms/lua/parts/estimate_wait.lua computes expected waits.

local get_pace
do
-- Returns two values:
--   the probability per ms that a waiting visitor gives up
--   the share of the visitors in the queue who have not given up
-- It is noticed late that a visitor gave up: only when a heartbeat is overdue by heartbeat_timeout,
-- and heartbeats are up to half that time apart. `window_ms`: the time that the averaging window
-- covers.
local function estimate_leave_rate(window_ms)
  local waiting = size(WAITING)
  local silent = redis_call('ZCOUNT', DUE, get_overdue_range())
  local lag_ms = 1.25 * timeout_ms
  -- It is not known yet who has given up within the last `lag_ms`, so the time waited since then is
  -- subtracted. At most half of waited_ms is subtracted, so that the first drops do not weigh too
  -- much.
  local waited_ms, decay = stats.waited_ms or 0, math.exp(-lag_ms / window_ms)
  local known_ms = (waited_ms - waiting * window_ms * (1 - decay)) / decay
  known_ms = math.max(known_ms, waited_ms / 2)
  local leaving = ((stats.drops or 0) + silent) / (known_ms + 10 * session_ms)
  -- Some visitors in the queue have given up: the silent ones, and others who are not noticed yet.
  local head = redis_call('ZRANGE', WAITING, '0', '0', 'WITHSCORES')
  local unknown_ms = math.min(lag_ms, now - tonumber(head[2] or 0) / 1000)
  return leaving, (1 - silent / math.max(1, waiting)) / (1 + leaving * unknown_ms)
end

-- Returns two values:
--   the time until the room is exactly full, in ms
--   the rate of calls until then, per ms
-- After that time, each session that ends frees a slot for one call. Before, a room whose cap was
-- lowered empties down to the cap, and a room with a rate limit (`limit`, per ms) fills up at that
-- rate. `hold_ms`: how long a session lasts.
local function estimate_transition(hold_ms, limit)
  local active = size(ACTIVE)
  if active > cap then return hold_ms * math.log(active / cap), 0 end
  local limited_active = limit * hold_ms -- the number of sessions that the limit allows in the end
  if active == cap or limited_active <= cap or limited_active == math.huge then return 0, 0 end
  return hold_ms * math.log((limited_active - active) / (limited_active - cap)), limit
end

local function compute_pace()
  local ends, held_ms = read_hold_times()
  local hold_ms = held_ms / ends
  local rate = cap / hold_ms
  local limit = (per_minute or math.huge) / 60000
  local pace = {is_known = true, rate = math.min(rate, limit)}
  pace.leaving, pace.present_share = estimate_leave_rate(get_window_size() / pace.rate)
  pace.transition_ms, pace.transition_rate = estimate_transition(hold_ms, limit)
  pace.free_slots = count_free_slots()
  return pace
end

-- Returns the pace, whose `is_known` is false if nobody is called now. The pace is computed once in
-- a batch, and again after a newcomer took a free slot. A library caches the pace for
-- PACE_CACHE_MS, as long as the number of sessions stays the same and the number of waiting
-- visitors about the same.
local PACE_CACHE_MS = 100
local UNKNOWN = {is_known = false}
function get_pace()
  if phase ~= OPEN or cap < 1 or is_held then return UNKNOWN end
  local pace, waiting, active = room.pace, size(WAITING), size(ACTIVE)
  if not pace or math.abs(pace.waiting - waiting) * 100 > waiting or pace.active ~= active
    or pace.cap ~= cap or pace.per_minute ~= per_minute or pace.born ~= stats.born
    or now < pace.at or now - pace.at >= PACE_CACHE_MS then
    pace = compute_pace()
    pace.at, pace.waiting, pace.active = now, waiting, active
    pace.cap, pace.per_minute, pace.born = cap, per_minute, stats.born
    pace.counted_at = now
    room.pace = pace
  elseif per_minute and pace.counted_at ~= now then -- tokens may have been spent meanwhile
    pace.free_slots, pace.counted_at = count_free_slots(), now
  end
  cache.pace = pace
  return pace
end
end
