-- A waiting visitor's score in `due` is when its next heartbeat is expected (whole ms).
-- A place that nobody has polled for yet is marked by half a millisecond, and its score
-- is set so that the sweep's one rule (due + heartbeat_timeout) drops it after
-- claim_window. One sorted set thus answers both, and a poll needs no further command.
local function unpolled_score()
  return string.format('%.1f', now + claim_ms - timeout_ms + 0.5)
end

-- A score, as a number, for when the heartbeat was due: for an unpolled place when it was
-- taken, or about then where the two settings have changed since; in no case later than now.
local function due_at(due)
  if due % 1 ~= 0 then return math.min(now, due - 0.5 - claim_ms + timeout_ms) end
  return due
end

-- Whether a poll (a score as a number) comes before it is due.
local function is_early(due)
  return now < due and due % 1 == 0
end
