-- @include "rooms/parts/heartbeat_due"
-- @include "rooms/parts/estimate_wait"
-- @include "rooms/parts/poll_interval"
-- @include "rooms/parts/place"
-- @include "rooms/parts/unused_session"
-- The replies about one visitor, as rooms/store/replies.py reads them:
-- {ADMITTED_NOW, order, started, expires}
-- {WAITING_SHORT, order, ahead, refresh, wait (-1: unknown)}
-- {WAITING_LONG, order, ahead, refresh, wait, limited, calls, sub-queue (-1: none), the sub-queue's
--   length, 1 if the visitor got a class}, if one of the last five is not the default
-- {GONE, FULL, REJECTED or GIVEN_UP, refresh}. Only leave.lua returns GIVEN_UP: the visitor is
--   gone, and had a place or a session
local ADMITTED_NOW, WAITING_SHORT, WAITING_LONG = 1, 0, 2
local GONE, FULL, REJECTED, GIVEN_UP = -1, -2, -3, -4

local function admitted_reply(order, started, ends)
  return {ADMITTED_NOW, tonumber(order), started, ends}
end

local function refused_reply(outcome, refresh) return {outcome, refresh} end

-- Turns a provisional session into a full session. A session that is full already, because another
-- tab claimed it or the reply to an earlier claim was lost, stays unchanged.
local function claim(visitor, order, ends, joined)
  local started = redis_call('ZSCORE', ADMITTED, visitor)
  if started then
    started, ends = tonumber(started), tonumber(ends)
    local first = is_unused(ends) and admit_unused(visitor, started, ends)
    return admitted_reply(order, started, first or ends - room.session_grace_ms)
  end
  if joined then count_wait(now - joined) end
  event('admitted', visitor, 'claimed', 'order', int(order), 'joined', int(joined or now))
  put(SPENT, now, visitor)
  return admitted_reply(order, now, admit(visitor, now))
end

-- Returns the reply to a waiting visitor. shown_position() returns `ahead`, `calls`, `line` and
-- `length`. During a recovery the wait is unknown.
local function waiting_reply(order, ahead, calls, refresh, wait, limited, line, length, class)
  wait = stage == 0 and wait or -1
  local is_classed = class and class ~= ''
  if calls == ahead and limited == 0 and not line and not is_classed then
    return {WAITING_SHORT, order, ahead, refresh, wait}
  end
  return {WAITING_LONG, order, ahead, refresh, wait, limited, calls, line or -1, length or -1,
    is_classed and 1 or 0}
end

-- Returns the reply to a waiting or called visitor who has just polled, and stores when the next
-- poll is due. `score` as in seldom_ms().
local function poll_reply(visitor, order, limited, jitter, joined, score)
  local rank = redis_call('ZRANK', WAITING, visitor)
  if not rank then
    joined = tonumber(joined)
    flush()
    measure_start() -- if nothing was to change, the script has not called it yet
    local ends = redis_call('ZSCORE', ACTIVE, visitor)
    if ends then return claim(visitor, order, ends, joined) end
    -- Redis evicted `waiting`. The place is restored, so that nobody can jump the queue.
    restore_place(visitor, order, 'ticket', joined)
    flush()
    return poll_reply(visitor, order, limited, jitter, joined, score)
  end
  local ahead, calls, line, length = rank, rank, nil, nil
  if not room.is_plain then
    ahead, calls, line, length = shown_position(visitor, order, rank, joined)
  end
  local wait = wait_ms(calls)
  local refresh = refresh_ms(calls, wait, jitter)
  if refresh < limited then refresh = limited end
  put(DUE, polled_score(refresh, score), visitor)
  return waiting_reply(order, ahead, calls, refresh, wait, limited, line, length)
end

-- Ends the script. Returns the whole reply: now, waiting, active, epoch, stage of the recovery,
-- relative error of the rate in thousandths, phase; then the reply about each visitor. All are in
-- one row, because each table in a reply costs Redis as much as a command.
local function finish_with(replies)
  finish()
  local error_in_thousandths = math.floor(1000 * rate_error())
  local row = {now, size(WAITING), size(ACTIVE), epoch, stage, error_in_thousandths, phase}
  local n = 7
  for i = 1, #replies do
    local reply = replies[i]
    for j = 1, #reply do row[n + j] = reply[j] end
    n = n + #reply
  end
  return row
end
