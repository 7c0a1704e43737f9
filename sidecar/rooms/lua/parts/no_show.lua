-- @include "rooms/parts/heartbeat_due"
-- Decides how long a slot waits for a visitor who is called and does not come.
local silent_from, called_until
do
-- Returns how long after a missed heartbeat the visitor counts as silent, ms: three intervals, but
-- at least 10 s and at most claim_window. (A visitor who is skipped can come back to the same order
-- with the ticket.) It is claim_window if the interval is unknown, or if a webhook tells visitors
-- without an open page that they are called.
local function patience_ms(score)
  local advised_s = score % 1 * 128
  if advised_s == 0 or is_unused(score) or room.tells_called then return claim_ms end
  if is_seldom(score) then return math.min(claim_ms, 30000) end
  return math.min(claim_ms, math.max(10000, 3000 * advised_s))
end

-- Returns from when on the visitor counts as silent, ms. After an outage, that is not before
-- `back_until`.
function silent_from(score)
  local due = due_at(score)
  return due <= back and back_until or due + patience_ms(score)
end

-- Returns until when a visitor who is called now must arrive.
function called_until(score)
  local patience = patience_ms(score)
  return math.max(silent_from(score), now + (patience == claim_ms and claim_ms or 1000))
end
end
