-- @include "rooms/parts/standing"
-- @include "rooms/parts/places_per_address"
-- Decides who gets a lost place back: the visitor's signed ticket says which place it was.
-- Handles the heartbeat of a visitor whose place is lost: restores it. Returns nil for a void
-- ticket and for a place that lapsed too long ago; FULL if the address has all its places; else 0.
-- A Redis that was emptied does not know who has polled, so for a while it accepts all older
-- tickets.
local function rejoin(visitor, order, ticket_epoch, joined, signed, address)
  if redis_call('ZSCORE', REVOKED, visitor) then return nil end
  if redis_call('ZSCORE', ACTIVE, visitor) then return 0 end
  if redis_call('ZSCORE', SPENT, visitor) then return nil end
  if is_lost_to_event(tonumber(order), joined) or ticket_epoch < epoch then return nil end
  local emptied = math.max(stats.born, stats.recovery or 0)
  local was_lost = joined < emptied
  local polled = math.max(signed == 0 and now or signed, back, was_lost and emptied or 0)
  -- A polling visitor's ticket is at most 300,000 ms old (visitors/model.py: RESIGN_MS).
  local most_ms = room.rejoin_ms + 300000
  if now - polled > most_ms then return nil end
  if not (was_lost and now - emptied <= most_ms) and has_all_places(address) then
    count('refused_address')
    return FULL
  end
  if ticket_epoch > epoch then -- Redis has lost its epoch; the one in a signed ticket is right
    epoch = ticket_epoch
    redis_call('HSET', CONFIG, 'epoch', int(epoch))
  end
  restore_place(visitor, order, 'ticket', joined)
  store_address(address, visitor)
  redis_call('ZADD', DUE, now, visitor)
  return 0
end
