-- @include "shared/line"
-- @include "shared/admit"
-- The replies about one visitor, as store/rooms.py reads them:
-- {outcome, order, started, expires, ahead, refresh, wait (-1 unknown), limited, calls, line (-1:
-- there are none), length of the line, whether the class was given}
local ADMITTED_NOW, WAITS, GONE, FULL, REJECTED = 1, 0, -1, -2, -3

local function admitted_reply(order, started, ends)
  return {ADMITTED_NOW, int(order), started, ends, 0, 0, 0, 0, 0, -1, -1, 0}
end

-- Makes a provisional session a full one. Where another tab was first, or the reply to
-- this claim was lost, the session is there already and stays as it is.
local function claim(visitor, order, ends, joined)
  local started = redis_call('ZSCORE', ADMITTED, visitor)
  if started then
    return admitted_reply(order, tonumber(started), tonumber(ends) - room.session_grace_ms)
  end
  if joined then count_wait(now - joined) end
  event('admitted', visitor, 'claimed', 'order', int(order), 'joined', int(joined or now))
  put(SPENT, int(now), visitor)
  return admitted_reply(order, now, admit(visitor, now))
end

-- The order as text; `place` as shown() says. While places come back, nobody knows the wait.
local function waiting_reply(order, place, refresh, wait, limited, class)
  if recovery_stage() > 0 then wait = nil end
  return {WAITS, order, 0, 0, place[1], refresh, math.floor(wait or -1), limited,
    math.floor(place[2]), place[3] or -1, place[4] or -1, class and class ~= '' and 1 or 0}
end

-- For somebody just heard of (the order is text), who is in line or called: says when to
-- come back, and notes it.
local function stand(visitor, order, limited, jitter, joined)
  local rank = redis_call('ZRANK', WAITING, visitor)
  if not rank then
    flush()
    local ends = redis_call('ZSCORE', ACTIVE, visitor)
    if ends then return claim(visitor, order, ends, joined) end
    join(visitor, order, 'ticket', joined) -- a store that evicts took `waiting`: nobody slips in
    flush()
    return stand(visitor, order, limited, jitter, joined)
  end
  local place = shown(visitor, tonumber(order), rank, joined)
  local wait = wait_ms(place[2])
  local refresh = math.max(limited, refresh_ms(place[2], wait, jitter))
  put(DUE, polled_score(refresh), visitor)
  return waiting_reply(order, place, refresh, wait, limited)
end

local function refused_reply(outcome, refresh)
  return {outcome, '0', 0, 0, 0, refresh, -1, 0, 0, -1, -1, 0}
end

-- The head of every reply: now, waiting, active, epoch, stage of the recovery, spread of the
-- rate in thousandths, phase.
local function headed(replies)
  finish()
  return {now, redis_call('ZCARD', WAITING), redis_call('ZCARD', ACTIVE), epoch, recovery_stage(),
    math.floor(1000 * spread()), phase, replies}
end
