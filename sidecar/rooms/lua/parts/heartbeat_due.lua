-- @include "rooms/parts/unused"
-- The score of a waiting visitor in `due` holds three facts, so that a poll needs no further
-- command. Its whole part is when the next heartbeat is expected, ms. Its fraction, times 128, is
-- how many seconds the visitor was advised to wait until then (63 at most; 0: unknown). If the
-- fraction is above 1/2, the visitor polls seldom, and the rest above 1/2 is the interval between
-- their polls in the same form. A fraction of exactly 1/2 marks an unused place: nobody has polled
-- for it yet.

-- Returns the score of a new, unused place. The sweep drops places at due + heartbeat_timeout, and
-- this score makes it drop an unused place after claim_window.
local function unpolled_score()
  return now + claim_ms - timeout_ms + UNUSED
end

local function is_seldom(score)
  return score % 1 > UNUSED
end

local polled_score
do
-- A visitor who polls later than advised by LATE_MS polls seldom.
local LATE_MS, MOST_MS = 10000, 60000

-- Returns the interval between a visitor's polls, ms, if it is much longer than advised; else, or
-- if it is unknown, nil. `score`: the visitor's score before this poll; nil: unknown; false: the
-- place was lost.
local function seldom_ms(advised_ms, score)
  if score == false then
    return stage == 0 and advised_ms + LATE_MS <= MOST_MS and MOST_MS or nil
  end
  if not score or is_unused(score) or score <= back then return nil end
  local late_ms = now - math.floor(score)
  if late_ms < LATE_MS and not is_seldom(score) then return nil end
  local took_ms = late_ms + 128000 * (score % UNUSED)
  return took_ms >= advised_ms + LATE_MS and math.min(took_ms, MOST_MS) or nil
end

-- Returns the new score of a visitor who is advised to poll again in `advised_ms`.
function polled_score(advised_ms, score)
  local seldom = seldom_ms(advised_ms, score)
  local ms = seldom or advised_ms
  local seconds = math.min(63, (ms + -ms % 1000) / 1000)
  return now + ms + seconds / 128 + (seldom and UNUSED or 0)
end
end

-- Returns when the heartbeat of a score is due, ms. For an unused place that is about when it was
-- taken, and never later than now.
local function due_at(score)
  if is_unused(score) then
    return math.min(now, score - UNUSED - claim_ms + timeout_ms)
  end
  return math.floor(score)
end

-- Returns the range of scores that are overdue by heartbeat_timeout. For a while after an outage,
-- it leaves out heartbeats that were due during the outage, because none could arrive.
local function overdue_range()
  local is_spared = now <= math.max(back + timeout_ms, back_until)
  return is_spared and int(back + 1) or '-inf', '(' .. int(now - timeout_ms)
end
