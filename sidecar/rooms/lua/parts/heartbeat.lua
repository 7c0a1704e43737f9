-- @include "rooms/parts/standing"
-- @include "rooms/parts/early_polls"
-- @include "rooms/parts/places_per_address"
-- @include "rooms/parts/reserved"
-- A visitor is silent after claim_window, which is 5 s at least.
local function is_skipped(due)
  return due < now - 5000 and silent_from(due) < now
end

-- Heartbeats. First all visitors of the batch are noted as present, so that a call skips none of
-- them. A visitor's `due` is moved at once only if a call would drop the visitor; else once, by
-- stand(). Returns for how many ms the visitor is over poll_limit, or 0.
local function arrive(visitor, due, order, joined)
  local seldom = is_seldom(due)
  if seldom then reserved.take_back(visitor, joined) end
  if phase == PREQUEUE then
    joined = tonumber(joined)
    if joined < event_begins and is_drawn(tonumber(order)) then
      put_in_line(visitor, joined * 1000, joined * 1000) -- drawn for an earlier event: to the end
    end
  end
  if seldom then
    redis_call('ZADD', DUE, now, visitor)
    return 0
  end
  if due >= now then return early_poll(visitor, due) end
  if is_skipped(due) then redis_call('ZADD', DUE, now, visitor) end
  return 0
end

local come_back
do
-- A visitor who polls has a ticket that was signed within this time (visitors/model.py: RESIGN_MS).
local RESIGN_MS = 300000

-- The same for a visitor without a place. Returns nil for a void ticket, or for a place that lapsed
-- too long ago, and FULL if the address has all its places. A Redis that was emptied has forgotten
-- who has polled, so for a while it accepts all tickets of before.
function come_back(visitor, order, ticket_epoch, joined, signed, address)
  if redis_call('ZSCORE', REVOKED, visitor) then return nil end
  if redis_call('ZSCORE', ACTIVE, visitor) then return 0 end
  if redis_call('ZSCORE', SPENT, visitor) then return nil end
  -- A lost place from before the event: its visitor is a newcomer to the event.
  if joined < event_begins
    and (is_drawn(tonumber(order)) or phase == PREQUEUE or room.between_events ~= 'open') then
    return nil
  end
  if ticket_epoch < epoch then return nil end
  local emptied = math.max(stats.born, stats.recovery or 0)
  local was_lost = joined < emptied
  local polled = math.max(signed == 0 and now or signed, back, was_lost and emptied or 0)
  local most_ms = room.rejoin_ms + RESIGN_MS
  if now - polled > most_ms then return nil end
  if not (was_lost and now - emptied <= most_ms) and is_hoarding(address) then
    count('refused_address')
    return FULL
  end
  if ticket_epoch > epoch then -- the store was emptied; the ticket is signed, believe it
    epoch = ticket_epoch
    redis_call('HSET', CONFIG, 'epoch', int(epoch))
  end
  join(visitor, order, 'ticket', joined)
  note_address(address, visitor)
  redis_call('ZADD', DUE, now, visitor)
  return 0
end
end

-- Returns whether nobody's place or session changes: these polls come as advised, no session has
-- expired, nobody can be called, and time was measured a moment ago.
local MOMENT_MS = 100
local function is_quiet(dues)
  local since = now - (stats.measured_at or 0)
  if since < 0 or since >= MOMENT_MS or phase ~= OPEN or stage ~= 0 or has_just_returned then
    return false
  end
  for n = 1, #dues do
    local due = dues[n] and dues[n] + 0
    if not due or due >= now or is_skipped(due) or is_seldom(due) then return false end
  end
  return (room.queue_all or size(ACTIVE) >= cap)
    and redis_call('ZCOUNT', ACTIVE, '-inf', int(now)) == 0
end
