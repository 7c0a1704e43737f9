-- @include "shared/standing"
-- Heartbeats. First everybody is noted as present, so that the call passes over none of them: its
-- `due` is moved at once only where the call would drop it; else once, by stand().
-- Returns how long it polled too often (ms).
local function arrive(visitor, due, order, joined)
  if phase == PREQUEUE then
    joined = tonumber(joined)
    if joined < event_begins and is_drawn(tonumber(order)) then
      put_in_line(visitor, joined * 1000, joined * 1000) -- drawn for another one: behind this one
    end
  end
  if due >= now then return early_poll(visitor, due) end
  -- Nobody is silent so soon: it takes claim_window, and that is 5 s at least.
  if due < now - 5000 and silent_from(due) < now then redis_call('ZADD', DUE, now, visitor) end
  return 0
end

-- The same for somebody who has no place (any more); nil for a ticket that is worth nothing.
local function come_back(visitor, order, ticket_epoch, joined)
  if redis_call('ZSCORE', REVOKED, visitor) then return nil end
  if redis_call('ZSCORE', ACTIVE, visitor) then return 0 end
  if redis_call('ZSCORE', SPENT, visitor) then return nil end
  -- A place that was lost and is of before the event: its visitor is a newcomer to it.
  if joined < event_begins
    and (is_drawn(tonumber(order)) or phase == PREQUEUE or room.between_events ~= 'open') then
    return nil
  end
  if ticket_epoch < epoch then return nil end
  if ticket_epoch > epoch then -- the store was emptied; the ticket is signed, believe it
    epoch = ticket_epoch
    redis_call('HSET', CONFIG, 'epoch', int(epoch))
  end
  join(visitor, order, 'ticket', joined)
  redis_call('ZADD', DUE, now, visitor)
  return 0
end
