-- @include "rooms/parts/standing"
-- @include "rooms/parts/places_per_address"
-- Decides who gets a lost place back. The visitor's signed ticket has the order of the place.

-- Restores the place of a visitor whose heartbeat finds no place. Returns nil for a void ticket and
-- for a place that lapsed too long ago; FULL if the address has all its places; else 0. After Redis
-- was emptied, it is not known who has polled, so for a while all older tickets are valid.
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
