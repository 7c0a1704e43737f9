-- @include "rooms/parts/heartbeat_due"
-- Decides when a visitor without heartbeats counts as silent, and for how long a slot is kept for a
-- called visitor who does not arrive.
local get_silent_time, get_call_end
do
-- Returns the time after a missed heartbeat, in ms, from which the visitor counts as silent. It is
-- three poll intervals, or 30 s if the visitor polls rarely, but at least 10 s and at most
-- claim_window. It is claim_window if the interval is unknown, or if a webhook tells visitors
-- without an open page that they are called. A silent visitor can come back to the same order with
-- the ticket.
local function get_patience_ms(score)
  local advised_s = score % 1 * 128
  if advised_s == 0 or is_unused(score) or room.tells_called then return claim_ms end
  if polls_rarely(score) then return math.min(claim_ms, 30000) end
  return math.min(claim_ms, math.max(10000, 3000 * advised_s))
end

-- Returns the time, in ms, from which the visitor counts as silent. If the heartbeat was due before
-- the end of an outage, that is `spared_until`.
function get_silent_time(score)
  local due = get_due_time(score)
  return due <= outage_end and spared_until or due + get_patience_ms(score)
end

-- Returns the time, in ms, until which a visitor who is called now must arrive.
function get_call_end(score)
  local patience = get_patience_ms(score)
  return math.max(get_silent_time(score), now + (patience == claim_ms and claim_ms or 1000))
end
end
