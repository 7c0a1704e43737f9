-- @include "rooms/parts/heartbeat_due"
-- @include "rooms/parts/estimate_wait"
-- @include "rooms/parts/position"
-- Places in the queue.

-- A newcomer's order, and the arrival that it was made of. `draw` is in [0, 1).
local function next_order(draw, class)
  local lot = math.floor(draw * DRAWS)
  if phase == PREQUEUE then return lot + bottom(FRONT), lot end
  local arrival = is_random and lot - lot % STEP or arrive_now()
  return order_of(arrival, class), arrival
end

-- A visitor who took a place in the pre-queue stays in its list, for all to check.
local function note_drawn(visitor, order)
  if not event_on or not is_drawn(order) then return end
  if stats.drawn_from ~= event_begins then
    redis_call('UNLINK', DRAWN)
    stats.drawn_from = event_begins
  end
  redis_call('ZADD', DRAWN, 'NX', int(order), visitor)
  found.drawn = nil
end

-- Somebody is back at a place that was taken at `joined` (ms; nil where unknown). The caller
-- notes in `due` when the next heartbeat is expected.
local function join(visitor, order, why, joined)
  put_in_line(visitor, tonumber(order), (joined or now) * 1000)
  if event_on and joined and joined >= event_begins and joined < event_on.opens_at then
    note_drawn(visitor, tonumber(order))
  end
  local said = {'joined', int(joined or now), 'order', int(order)}
  event('joined', visitor, why, unpack(said, 1, phase == PREQUEUE and 2 or 4)) -- a lot is kept back
end

-- The first few in the queue look often, however slowly it moves: theirs is the next slot.
local NEAR_THE_HEAD = 5

-- A tenth of the wait (ms, nil if unknown), 2 s to 60 s, or as the room fixes it; up to a
-- quarter is added at random so that those who came together do not poll together.
local function refresh_ms(ahead, wait, jitter)
  if phase == PREQUEUE then
    -- All of them want to know their place when it opens: as many at a time as replicas can serve.
    local till_opening = event_on.opens_at - now
    if till_opening < math.min(48000, timeout_ms / 4) then
      local spread = math.min(20000, timeout_ms / 4, 2000 + size(WAITING) / 5)
      return math.floor(math.max(1000, till_opening + jitter * spread))
    end
    ahead = NEAR_THE_HEAD -- nobody is to learn from it where they stand
  end
  local refresh = (room.heartbeat_interval or 2) * 1000
  if not room.heartbeat_interval then
    if ahead >= NEAR_THE_HEAD then
      local tenth = (wait or 600000) / 10
      if tenth > 2000 then refresh = tenth < 48000 and tenth or 48000 end
    end
    refresh = refresh * (1 + jitter / 4)
  end
  if refresh > timeout_ms / 2 then refresh = timeout_ms / 2 end
  return refresh - refresh % 1
end

-- A poll that comes before it is due is counted; one that comes as advised costs nothing.
-- Returns the ms until the count starts anew where it is over poll_limit, else 0.
local function early_poll(visitor, due)
  if not is_early(due) then return 0 end
  if not found.minute then
    local minute = int(math.floor(now / 60000))
    found.minute = minute
    if redis_call('HGET', POLLS, 'minute') ~= minute then
      redis_call('UNLINK', POLLS)
      redis_call('HSET', POLLS, 'minute', minute)
      redis_call('PEXPIRE', POLLS, 120000)
    end
  end
  if redis_call('HINCRBY', POLLS, visitor, 1) <= room.poll_limit then return 0 end
  return 60000 - now % 60000
end
