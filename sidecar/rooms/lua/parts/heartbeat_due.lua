-- @include "rooms/parts/unused"
-- A waiting visitor's score in `due` is when its next heartbeat is expected (whole ms), and in
-- its fraction, in parts of 128, how many seconds the visitor was advised to wait for that (63 at
-- most; 0: not known). Above a half: of who polls seldom, how many seconds they take, more
-- than advised. One sorted set thus answers all, and a poll needs no further command.
-- A place that nobody has polled for yet is unused; its score is set so that the sweep's one rule
-- (due + heartbeat_timeout) drops it after claim_window.
local function unpolled_score()
  return now + claim_ms - timeout_ms + UNUSED
end

local function is_seldom(score)
  return score % 1 > UNUSED
end

local polled_score
do
-- Who polls later than advised by so much polls seldom.
local LATE_MS, MOST_MS = 10000, 60000

-- How long somebody takes between two polls, ms; nil where that is about as advised (whole ms),
-- or nobody knows. `score` is what they had until now; false: they had lost their place.
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

-- Of somebody who was advised so much.
function polled_score(advised_ms, score)
  local seldom = seldom_ms(advised_ms, score)
  local ms = seldom or advised_ms
  local seconds = math.min(63, (ms + -ms % 1000) / 1000)
  return now + ms + seconds / 128 + (seldom and UNUSED or 0)
end
end

-- A score, as a number, for when the heartbeat was due: for an unpolled place when it was
-- taken, or about then where the two settings have changed since; in no case later than now.
local function due_at(score)
  if is_unused(score) then
    return math.min(now, score - UNUSED - claim_ms + timeout_ms)
  end
  return math.floor(score)
end

-- How long after that the visitor counts as silent: after three missed polls, 10 s at least and
-- claim_window at most. Their order stays theirs by their ticket, so passing them over costs them
-- nothing. All of claim_window where a webhook brings the call to people who have no page open,
-- and where nobody knows how often they poll.
local function patience_ms(score)
  local advised_s = score % 1 * 128
  if advised_s == 0 or is_unused(score) or room.tells_called then return claim_ms end
  if is_seldom(score) then return math.min(claim_ms, 30000) end
  return math.min(claim_ms, math.max(10000, 3000 * advised_s))
end

-- From when on; not in an outage, and not before the page had time to ask after it.
local function silent_from(score)
  local due = due_at(score)
  return due <= back and back_until or due + patience_ms(score)
end

-- Until when somebody who is called now has to come.
local function called_until(score)
  local patience = patience_ms(score)
  return math.max(silent_from(score), now + (patience == claim_ms and claim_ms or 1000))
end

-- Whose score is below this is overdue by heartbeat_timeout; above `spared` (as text), nobody was
-- to be heard at the time.
local function overdue_range()
  local is_spared = now <= math.max(back + timeout_ms, back_until)
  return is_spared and int(back + 1) or '-inf', '(' .. int(now - timeout_ms)
end
