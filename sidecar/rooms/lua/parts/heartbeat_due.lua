-- @include "rooms/parts/unused"
-- A waiting visitor's score in `due` is when the next heartbeat is expected (whole ms). Its
-- fraction, in parts of 128, is how many seconds the visitor was advised to wait for that (63 at
-- most; 0: unknown). A fraction above a half marks a visitor who polls seldom, and holds how many
-- seconds they take. So one sorted set holds all of it, and a poll needs no further command. A
-- place that nobody has polled for yet is unused. Its score is set so that the sweep's one rule
-- (due + heartbeat_timeout) drops it after claim_window.
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

-- Returns how long a visitor takes between two polls, ms; nil if about as long as advised (whole
-- ms), or unknown. `score` is the one until now; false: the place was lost.
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

-- Returns the score of a visitor who was advised to poll in `advised_ms`.
function polled_score(advised_ms, score)
  local seldom = seldom_ms(advised_ms, score)
  local ms = seldom or advised_ms
  local seconds = math.min(63, (ms + -ms % 1000) / 1000)
  return now + ms + seconds / 128 + (seldom and UNUSED or 0)
end
end

-- Returns when the heartbeat of a score was due, ms. For an unpolled place that is about when it
-- was taken, and never later than now.
local function due_at(score)
  if is_unused(score) then
    return math.min(now, score - UNUSED - claim_ms + timeout_ms)
  end
  return math.floor(score)
end

-- Returns how long after that the visitor counts as silent: after three missed polls, 10 s at least
-- and claim_window at most. A skipped visitor keeps the order by the ticket. It is all of
-- claim_window where a webhook brings the call to visitors without an open page, or the interval is
-- unknown.
local function patience_ms(score)
  local advised_s = score % 1 * 128
  if advised_s == 0 or is_unused(score) or room.tells_called then return claim_ms end
  if is_seldom(score) then return math.min(claim_ms, 30000) end
  return math.min(claim_ms, math.max(10000, 3000 * advised_s))
end

-- Returns from when on the visitor is silent. After an outage pages first have time to ask.
local function silent_from(score)
  local due = due_at(score)
  return due <= back and back_until or due + patience_ms(score)
end

-- Returns until when a visitor who is called now must arrive.
local function called_until(score)
  local patience = patience_ms(score)
  return math.max(silent_from(score), now + (patience == claim_ms and claim_ms or 1000))
end

-- Returns the range of scores that are overdue by heartbeat_timeout, without heartbeats that were
-- due in an outage, when nobody could be heard.
local function overdue_range()
  local is_spared = now <= math.max(back + timeout_ms, back_until)
  return is_spared and int(back + 1) or '-inf', '(' .. int(now - timeout_ms)
end
