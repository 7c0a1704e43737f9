-- @include "rooms/parts/standing"
-- @include "rooms/parts/places_per_address"
-- Admits newcomers, adds them to the queue or refuses them, after the next visitors were called.

-- The number of waiting visitors, the number of sessions and the highest order in the queue. They
-- are updated after each newcomer of a batch.
local waiting, active, highest_order
local function begin_newcomers(number)
  waiting, active, highest_order = size(WAITING), size(ACTIVE), math.huge
  if number == 1 then return end
  highest_order = tonumber(redis_call('ZRANGE', WAITING, '-1', '-1', 'WITHSCORES')[2] or -2 ^ 60)
end

-- Counts a newcomer who has just joined the queue. Returns how many visitors are ahead.
local function count_newcomer(visitor, order)
  waiting = waiting + 1
  if order > highest_order then
    highest_order = order
    return waiting - 1
  end
  flush()
  return redis_call('ZRANK', WAITING, visitor)
end

-- Returns the reply about a new place, and how many visitors are shown as ahead. The first poll is
-- due within half of claim_window, because an unused place expires after claim_window. The jitter
-- of the poll interval is made of the lowest bits of the random number, which reveal nothing about
-- the lot.
local function make_place_reply(visitor, order, rank, random, class)
  local ahead, calls, line, length = find_shown_position(visitor, order, rank)
  local wait = estimate_wait(calls)
  local refresh = poll_interval_ms(calls, wait, random * 2 ^ 25 % 1)
  refresh = math.min(refresh, math.floor(claim_ms / 2))
  return make_waiting_reply(order, ahead, calls, refresh, wait, 0, line, length, class), ahead
end

-- Returns the class that the visitor gets, and marks the one-time grant as used. Returns '' for no
-- class: in a pre-queue, or if the class is unknown, or if the grant was used before.
local function use_class_grant(class, grant, expires)
  if not classes[class] or phase == PREQUEUE then return '' end
  if grant ~= '' and redis_call('ZADD', GRANTS, 'NX', expires, grant) == 0 then return '' end
  return class
end

-- Counts a refusal and returns the reply about it.
local function refuse_as_full(counter, random)
  count(counter)
  return make_refusal(FULL, poll_interval_ms(waiting, estimate_wait(waiting), random))
end

-- Admits a newcomer, adds them to the queue, or refuses them. Returns the reply. A newcomer is
-- admitted at once only if nobody waits: the visitors who still wait after call_next() could not
-- get a slot either. `random` is the lot in the pre-queue that began at `prequeue_began`, in ms.
local function admit_or_queue(visitor, random, prequeue_began, address, class, grant, expires)
  if phase == CLOSED then return make_refusal(REJECTED, 60000) end
  -- The replica does not know this event yet, but will know it within a second.
  if phase == PREQUEUE and tonumber(prequeue_began) ~= event_begins then
    return make_refusal(REJECTED, 2000)
  end
  if has_max_places(address) then return refuse_as_full('refused_address', random) end
  if waiting == 0 and phase == OPEN and not is_held and stage < 2
    and active < cap and refill_tokens() >= 1 then
    spend_token()
    active = active + 1
    cache.pace = nil
    store_address(address, visitor)
    local order = make_order(random, '')
    event('admitted', visitor, 'at_once', 'order', int(order))
    return make_admitted_reply(order, now, admit_unused(visitor, now))
  end
  if room.queueing_method == 'reject' then
    count('rejected')
    return make_refusal(REJECTED, poll_interval_ms(0, nil, random))
  end
  if room.max_waiting and waiting >= room.max_waiting then
    return refuse_as_full('refused_full', random)
  end
  class = use_class_grant(class, grant, expires)
  local order, arrival = make_order(random, class)
  add_place(visitor, order, arrival)
  record_drawn_place(visitor, order)
  store_address(address, visitor)
  put(DUE, make_unpolled_score(), visitor)
  local rank = count_newcomer(visitor, order)
  local reply, ahead = make_place_reply(visitor, order, rank, random, class)
  local fields = {'order', int(order), 'position', ahead + 1, 'class', class}
  local first_field = phase == PREQUEUE and 7 or 1 -- the event must not reveal the lot
  event('joined', visitor, 'new', unpack(fields, first_field, class == '' and 4 or 6))
  return reply
end
