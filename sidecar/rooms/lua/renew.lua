-- Renews passes. If Redis has lost a session, restores it from the pass.
-- ARGV    from 6 on, for each visitor: id, order, when the session began (ms), when the pass ends
--         (ms), and the pass's origin:
--         '': a script issued the pass
--         'waited': a replica issued or extended the pass while Redis was unavailable, and the
--         visitor had a place in the queue
--         'new': a replica did so for a visitor who had no place
--         'expired': the pass has expired, and counts only if its session was extended (extend.lua)
-- RETURNS rooms/parts/standing
-- EVENTS  admitted, joined, called, expired
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"
-- @include "rooms/parts/standing"

-- Returns the reply if the pass is revoked or its session exists; nil if Redis has no session.
local function keep_session(visitor, order, started, pass_end, origin)
  flush()
  if redis_call('ZSCORE', REVOKED, visitor) then return make_refusal(GONE, 0) end
  local ends = redis_call('ZSCORE', ACTIVE, visitor)
  local is_over = not ends or ends - room.session_grace_ms <= now
  if origin == 'expired' and is_over then return make_refusal(GONE, 0) end
  if not ends then return nil end
  local began = redis_call('ZSCORE', ADMITTED, visitor)
  if not began then return claim_session(visitor, order, ends) end
  -- The time until which the visitor's earlier passes are valid. In an unused session it does not
  -- follow from `ends`, because the session may end before its pass.
  local valid_until = ends - room.session_grace_ms
  if is_unused(ends) then
    valid_until = math.max(pass_end, get_unused_end(tonumber(began)) - room.session_grace_ms)
  end
  return make_admitted_reply(order, started, admit(visitor, started, valid_until))
end

-- Restores a lost session from its pass. Returns the reply, or nil if no slot is free: then the
-- visitor waits. Two kinds of visitors get the session even without a free slot: those whose pass a
-- replica issued or extended while Redis was unavailable, and those who were admitted after the
-- time of the data with which Redis came back. Nobody is called until the room is below its cap
-- again. Times in the future are replaced by now, because a replica's clock may be ahead.
local function restore_session(visitor, order, started, ends, origin)
  started, ends = math.min(started, now), math.min(ends, now + session_ms)
  local is_over = size(ACTIVE) >= cap
  reserved.return_to_queue(visitor, now)
  local place = redis_call('ZSCORE', WAITING, visitor)
  local is_newer = stage == 2 and started > (stats.lost_since or now)
  if origin ~= '' or is_newer or not (place or is_over) then
    if place then
      redis_call('ZREM', WAITING, visitor)
      forget_size(WAITING)
      redis_call('ZREM', DUE, visitor)
      remove_arrivals({visitor})
    end
    if origin == 'waited' then put(SPENT, int(now), visitor) end
    if is_over and not is_newer then count('over_cap') end
    event('admitted', visitor, 'restored', 'order', int(order), 'joined', int(started))
    return make_admitted_reply(order, started, admit(visitor, started, ends))
  end
  if not place then
    -- Another visitor has the slot, so this visitor goes to the head of the queue.
    restore_place(visitor, order, 'pass')
    redis_call('ZREM', SPENT, visitor)
  end
  redis_call('ZADD', DUE, int(now), visitor)
end

local function keep_or_restore_session(...)
  return keep_session(...) or restore_session(...)
end

local function reply_to_waiting(visitor, order)
  return reply_to_poll(visitor, order, 0, 0)
end

-- Makes a reply for each visitor who has none yet.
local function fill_replies(ARGV, replies, make_reply)
  local n = 0
  for i = 6, #ARGV, 5 do
    n = n + 1
    replies[n] = replies[n] or make_reply(ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]),
      tonumber(ARGV[i + 3]), ARGV[i + 4])
  end
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  measure_elapsed()
  local replies = {}
  -- This comes before expire(), because a valid pass must find its session.
  fill_replies(ARGV, replies, keep_session)
  expire()
  fill_replies(ARGV, replies, keep_or_restore_session)
  call_next()
  fill_replies(ARGV, replies, reply_to_waiting)
  return finish_batch(replies)
end
