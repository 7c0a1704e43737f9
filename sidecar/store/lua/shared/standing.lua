-- @include "shared/line"
-- @include "shared/admit"
-- The replies about one visitor, as store/rooms.py reads them:
-- {outcome, order, started, expires, ahead, refresh, wait (-1 unknown), limited}
local ADMITTED_NOW, WAITS, GONE, FULL, REJECTED = 1, 0, -1, -2, -3

local function admitted_reply(order, started, ends)
  return {ADMITTED_NOW, int(order), started, ends, 0, 0, 0, 0}
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

-- The order as text. While places come back, nobody knows the wait.
local function waiting_reply(order, ahead, refresh, wait, limited)
  if recovery_stage() > 0 then wait = nil end
  return {WAITS, order, 0, 0, ahead, refresh, math.floor(wait or -1), limited}
end

-- For somebody just heard of (the order is text), who is in line or called: says when to
-- come back, and notes it.
local function stand(visitor, order, limited, jitter, joined)
  local ahead = redis_call('ZRANK', WAITING, visitor)
  if not ahead then
    flush()
    local ends = redis_call('ZSCORE', ACTIVE, visitor)
    if ends then return claim(visitor, order, ends, joined) end
    join(visitor, order, 'ticket', joined) -- a store that evicts took `waiting`: nobody slips in
    flush()
    return stand(visitor, order, limited, jitter, joined)
  end
  local wait = wait_ms(ahead)
  local refresh = math.max(limited, refresh_ms(ahead, wait, jitter))
  put(DUE, int(now + refresh), visitor)
  return waiting_reply(order, ahead, refresh, wait, limited)
end

local function refused_reply(outcome, refresh)
  return {outcome, '0', 0, 0, 0, refresh, -1, 0}
end

-- The head of every reply: now, waiting, active, epoch, stage of the recovery, spread of the
-- rate in thousandths.
local function headed(replies)
  finish()
  return {now, redis_call('ZCARD', WAITING), redis_call('ZCARD', ACTIVE), epoch, recovery_stage(),
    math.floor(1000 * spread()), replies}
end
