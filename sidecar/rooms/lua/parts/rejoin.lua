-- @include "rooms/parts/standing"
-- @include "rooms/parts/places_per_address"
-- Restores lost places. The visitor's signed ticket contains the order of the place.

-- Restores the place of a visitor who sends a heartbeat but has no place. After Redis was emptied,
-- it is not known who has polled since then, so for a while all older tickets are valid. Returns:
--   0 if the visitor has a place or a session now
--   nil if the ticket is void, or if the place expired too long ago
--   FULL if the IP address has all its places
local function rejoin(visitor, order, ticket_epoch, joined, signed, address)
  if redis_call('ZSCORE', REVOKED, visitor) then return nil end
  if redis_call('ZSCORE', ACTIVE, visitor) then return 0 end
  if redis_call('ZSCORE', SPENT, visitor) then return nil end
  if is_lost_to_event(tonumber(order), joined) or ticket_epoch < epoch then return nil end
  local emptied = math.max(stats.born, stats.recovery or 0)
  local was_lost = joined < emptied
  local polled = math.max(signed == 0 and now or signed, outage_end, was_lost and emptied or 0)
  -- A polling visitor's ticket is at most 300,000 ms old (visitors/model.py: TICKET_RENEW_MS).
  local max_ms = room.rejoin_ms + 300000
  if now - polled > max_ms then return nil end
  if not (was_lost and now - emptied <= max_ms) and has_max_places(address) then
    count('refused_address')
    return FULL
  end
  if ticket_epoch > epoch then -- Redis has lost the epoch of the last reset
    epoch = ticket_epoch
    redis_call('HSET', CONFIG, 'epoch', int(epoch))
  end
  restore_place(visitor, order, 'ticket', joined)
  store_address(address, visitor)
  redis_call('ZADD', DUE, now, visitor)
  return 0
end
