-- @include "rooms/parts/standing"
-- @include "rooms/parts/places_per_address"
-- Lets newcomers in, after the next visitors were called. `waiting`, `active` and `last` (the
-- highest order) are kept up to date for the next newcomer of the batch.
local waiting, active, last
local function begin_newcomers(number)
  waiting, active, last = size(WAITING), size(ACTIVE), math.huge
  if number == 1 then return end
  last = tonumber(redis_call('ZRANGE', WAITING, '-1', '-1', 'WITHSCORES')[2] or -2 ^ 60)
end

-- Returns how many are ahead of a newcomer who has just taken this place.
local function newcomer_rank(visitor, order)
  waiting = waiting + 1
  if order > last then
    last = order
    return waiting - 1
  end
  flush()
  return redis_call('ZRANK', WAITING, visitor)
end

-- Returns the reply about a new place, and how many are ahead. A place without a poll is kept for
-- claim_window, so the first poll is due within half of it. The jitter is made of the lowest digits
-- of the random number, which reveal nothing about the lot.
local function place_reply(visitor, order, rank, draw, class)
  local ahead, calls, line, length = shown_position(visitor, order, rank)
  local wait = wait_ms(calls)
  local refresh = math.min(refresh_ms(calls, wait, draw * 2 ^ 25 % 1), math.floor(claim_ms / 2))
  return waiting_reply(order, ahead, calls, refresh, wait, 0, line, length, class), ahead
end

-- Returns the class that the visitor gets: '' if the class is unknown, in a pre-queue, or if its
-- grant was used before.
local function granted_class(class, grant, expires)
  if not classes[class] or phase == PREQUEUE then return '' end
  if grant ~= '' and redis_call('ZADD', GRANTS, 'NX', expires, grant) == 0 then return '' end
  return class
end

local function refused_full(counted, draw)
  count(counted)
  return refused_reply(FULL, refresh_ms(waiting, wait_ms(waiting), draw))
end

-- Admits a newcomer or adds a place. Returns the reply. A newcomer is admitted at once only if
-- nobody waits: visitors who still wait after the calls could not be called either.
local function enter(visitor, draw, lot_of, address, class, grant, expires)
  if phase == CLOSED then return refused_reply(REJECTED, 60000) end
  -- The replica does not know this event yet, but learns of it within a second.
  if phase == PREQUEUE and tonumber(lot_of) ~= event_begins then
    return refused_reply(REJECTED, 2000)
  end
  if has_all_places(address) then return refused_full('refused_address', draw) end
  if waiting == 0 and phase == OPEN and not room.queue_all and stage < 2
    and active < cap and rate_tokens() >= 1 then
    spend_token()
    active = active + 1
    cache.pace = nil
    store_address(address, visitor)
    local order = next_order(draw, '')
    event('admitted', visitor, 'at_once', 'order', int(order))
    return admitted_reply(order, now, admit_unused(visitor, now))
  end
  if room.queueing_method == 'reject' then
    count('rejected')
    return refused_reply(REJECTED, refresh_ms(0, nil, draw))
  end
  if room.max_waiting and waiting >= room.max_waiting then
    return refused_full('refused_full', draw)
  end
  class = granted_class(class, grant, expires)
  local order, arrival = next_order(draw, class)
  add_place(visitor, order, arrival)
  list_drawn_place(visitor, order)
  store_address(address, visitor)
  put(DUE, unpolled_score(), visitor)
  local reply, ahead = place_reply(visitor, order, newcomer_rank(visitor, order), draw, class)
  local fields = {'order', int(order), 'position', ahead + 1, 'class', class}
  local first_field = phase == PREQUEUE and 7 or 1 -- the event must not tell the lot
  event('joined', visitor, 'new', unpack(fields, first_field, class == '' and 4 or 6))
  return reply
end
