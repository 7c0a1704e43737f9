-- @include "rooms/parts/unused"
-- Encodes and decodes the scores of waiting visitors in `due`. A score contains three values, so
-- that a poll needs no further command.
--   The whole part is the time at which the next heartbeat is due, in ms.
--   A fraction below 1/2, times 128, is the poll interval that the visitor was advised, in seconds
--   (63 at most; 0: unknown).
--   A fraction of exactly 1/2 marks an unused place: nobody has polled for the place yet.
--   A fraction above 1/2 means that the visitor polls rarely. The fraction minus 1/2, times 128, is
--   the interval between the visitor's polls, in seconds.

-- Returns the score of a new, unused place. A sweep removes a place whose heartbeat is overdue by
-- heartbeat_timeout. With this score, that happens after claim_window.
local function make_unpolled_score()
  return now + claim_ms - timeout_ms + UNUSED
end

local function polls_rarely(score)
  return score % 1 > UNUSED
end

local make_polled_score
do
-- A visitor whose poll is LATE_MS later than advised polls rarely. The longest interval between
-- such polls is MAX_INTERVAL_MS.
local LATE_MS, MAX_INTERVAL_MS = 10000, 60000

-- Returns the interval between a visitor's polls, in ms, if it is much longer than advised. Returns
-- nil if it is not, or if it is unknown. `score`: the visitor's score before this poll; nil if the
-- score is unknown, false if Redis lost the place.
local function find_rare_interval_ms(advised_ms, score)
  if score == false then
    return stage == 0 and advised_ms + LATE_MS <= MAX_INTERVAL_MS and MAX_INTERVAL_MS or nil
  end
  if not score or is_unused(score) or score <= outage_end then return nil end
  local late_ms = now - math.floor(score)
  if late_ms < LATE_MS and not polls_rarely(score) then return nil end
  local interval_ms = late_ms + 128000 * (score % UNUSED)
  return interval_ms >= advised_ms + LATE_MS and math.min(interval_ms, MAX_INTERVAL_MS) or nil
end

-- Returns the new score of a visitor whom the reply advises to poll again in `advised_ms`. `score`:
-- as in find_rare_interval_ms().
function make_polled_score(advised_ms, score)
  local rare_ms = find_rare_interval_ms(advised_ms, score)
  local ms = rare_ms or advised_ms
  local seconds = math.min(63, (ms + -ms % 1000) / 1000)
  return now + ms + seconds / 128 + (rare_ms and UNUSED or 0)
end
end

-- Returns the time, in ms, at which the heartbeat is due by a score. For an unused place, that is
-- about the time at which the visitor joined, and never later than now.
local function get_due_time(score)
  if is_unused(score) then
    return math.min(now, score - UNUSED - claim_ms + timeout_ms)
  end
  return math.floor(score)
end

-- Returns the lowest and the highest score of heartbeats that are overdue by heartbeat_timeout, for
-- ZRANGEBYSCORE. For a while after an outage, the range excludes heartbeats that were due during
-- the outage, because they could not arrive.
local function get_overdue_range()
  local is_spared = now <= math.max(outage_end + timeout_ms, spared_until)
  return is_spared and int(outage_end + 1) or '-inf', '(' .. int(now - timeout_ms)
end
