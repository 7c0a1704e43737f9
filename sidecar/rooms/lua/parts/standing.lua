-- @include "rooms/parts/heartbeat_due"
-- @include "rooms/parts/estimate_wait"
-- @include "rooms/parts/poll_interval"
-- @include "rooms/parts/place"
-- @include "rooms/parts/unused_session"
-- Makes the reply about one visitor, as rooms/store/replies.py reads it. The first value is the
-- kind of the reply. Times are in ms.
-- ADMITTED_NOW:   order, when the session began, when the pass expires
-- WAITING_SHORT:  order, how many visitors are ahead, time until the next poll, expected wait (-1:
--                 unknown)
-- WAITING_LONG:   the same four values, and five others, if not all of these are defaults:
--                 time until a visitor over poll_limit may poll again (0: not over it)
--                 how many visitors are called before (the same number as are ahead)
--                 index of the sub-queue (-1: none)
--                 length of the sub-queue (-1: none)
--                 1 if the visitor got a class, else 0
-- GONE, FULL, REJECTED, GIVEN_UP:  time until the next poll. GIVEN_UP, which only leave.lua
--                 returns, means that the visitor is gone and had a place or a session.
local ADMITTED_NOW, WAITING_SHORT, WAITING_LONG = 1, 0, 2
local GONE, FULL, REJECTED, GIVEN_UP = -1, -2, -3, -4

local function make_admitted_reply(order, started, ends)
  return {ADMITTED_NOW, tonumber(order), started, ends}
end

local function make_refusal(outcome, refresh) return {outcome, refresh} end

-- Turns a provisional session into a full session, and returns the reply. A session that is full
-- already stays unchanged: another tab claimed it, or the reply to an earlier claim was lost.
local function claim_session(visitor, order, ends, joined)
  local started = redis_call('ZSCORE', ADMITTED, visitor)
  if started then
    started, ends = tonumber(started), tonumber(ends)
    local pass_end = is_unused(ends) and admit_unused(visitor, started, ends)
    return make_admitted_reply(order, started, pass_end or ends - room.session_grace_ms)
  end
  if joined then count_wait(now - joined) end
  event('admitted', visitor, 'claimed', 'order', int(order), 'joined', int(joined or now))
  put(SPENT, now, visitor)
  return make_admitted_reply(order, now, admit(visitor, now))
end

-- Returns the reply to a waiting visitor. `ahead`, `calls`, `line` and `length` are the values that
-- find_shown_position() returns. During a recovery the wait is unknown.
local function make_waiting_reply(order, ahead, calls, refresh, wait, limited, line, length, class)
  wait = stage == 0 and wait or -1
  local is_classed = class and class ~= ''
  if calls == ahead and limited == 0 and not line and not is_classed then
    return {WAITING_SHORT, order, ahead, refresh, wait}
  end
  return {WAITING_LONG, order, ahead, refresh, wait, limited, calls, line or -1, length or -1,
    is_classed and 1 or 0}
end

-- Returns the reply to a waiting or called visitor who has just polled, and stores the time at
-- which the next poll is due. `limited`: how long the visitor must not poll, in ms. `score`: as in
-- find_rare_interval_ms().
local function reply_to_poll(visitor, order, limited, jitter, joined, score)
  local rank = redis_call('ZRANK', WAITING, visitor)
  if not rank then
    joined = tonumber(joined)
    flush()
    measure_elapsed() -- the script has not called it yet if all polls seemed routine
    local ends = redis_call('ZSCORE', ACTIVE, visitor)
    if ends then return claim_session(visitor, order, ends, joined) end
    -- The visitor is missing from `waiting`, because Redis evicted the key. Restore the place.
    restore_place(visitor, order, 'ticket', joined)
    flush()
    return reply_to_poll(visitor, order, limited, jitter, joined, score)
  end
  local ahead, calls, line, length = rank, rank, nil, nil
  if not room.is_plain then
    ahead, calls, line, length = find_shown_position(visitor, order, rank, joined)
  end
  local wait = estimate_wait(calls)
  local refresh = poll_interval_ms(calls, wait, jitter)
  if refresh < limited then refresh = limited end
  put(DUE, make_polled_score(refresh, score), visitor)
  return make_waiting_reply(order, ahead, calls, refresh, wait, limited, line, length)
end

-- Ends the script and returns its whole reply, as a flat list, because each nested table costs
-- Redis as much time as a command:
--   now
--   number of waiting visitors
--   number of sessions
--   epoch
--   stage of the recovery
--   relative error of the rate, in thousandths
--   phase
--   then the values of the reply about each visitor
local function finish_batch(replies)
  finish()
  local error_in_thousandths = math.floor(1000 * estimate_rate_error())
  local row = {now, size(WAITING), size(ACTIVE), epoch, stage, error_in_thousandths, phase}
  local n = 7
  for i = 1, #replies do
    local reply = replies[i]
    for j = 1, #reply do row[n + j] = reply[j] end
    n = n + #reply
  end
  return row
end
