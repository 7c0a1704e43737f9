-- Renews passes, and restores a session that Redis lost from its pass.
-- ARGV    from 6 on, for each visitor: id, order, when the session began, ms, when the pass ends,
--         ms, and '' if a script issued the pass; else a replica issued or extended it while Redis
--         was unavailable: 'waited' if the visitor had a place in the queue, or 'new'
-- RETURNS rooms/parts/standing
-- EVENTS  admitted, joined, called, expired
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"
-- @include "rooms/parts/standing"

-- Returns the reply to a pass that is revoked or whose session exists; nil if Redis has no session.
local function keep_session(visitor, order, started, pass_ends)
  flush()
  if redis_call('ZSCORE', REVOKED, visitor) then return refused_reply(GONE, 0) end
  local ends = redis_call('ZSCORE', ACTIVE, visitor)
  if not ends then return nil end
  local began = redis_call('ZSCORE', ADMITTED, visitor)
  if not began then return claim(visitor, order, ends) end
  -- `promised`: until when the visitor's earlier passes are valid. An unused session may end before
  -- its pass does, so its `ends` does not tell.
  local promised = ends - room.session_grace_ms
  if is_unused(ends) then
    promised = math.max(pass_ends, unused_until(tonumber(began)) - room.session_grace_ms)
  end
  return admitted_reply(order, started, admit(visitor, started, promised))
end

-- Restores a lost session from its pass. Returns the reply, or nil if no slot is free: then the
-- visitor waits. Two kinds of visitor get the session even without a free slot, and nobody is
-- called until the room is below its cap: visitors whom a replica admitted or kept by itself while
-- Redis was unavailable, and visitors who were admitted after the data that Redis came back with.
-- The replica's clock may be ahead of Redis' time, so times in the future are cut to now.
local function restore_session(visitor, order, started, ends, alone)
  started, ends = math.min(started, now), math.min(ends, now + session_ms)
  local is_over = size(ACTIVE) >= cap
  reserved.take_back(visitor, now)
  local place = redis_call('ZSCORE', WAITING, visitor)
  local is_newer = stage == 2 and started > (stats.lost_since or now)
  if alone ~= '' or is_newer or not (place or is_over) then
    if place then
      redis_call('ZREM', WAITING, visitor)
      resized(WAITING)
      redis_call('ZREM', DUE, visitor)
      remove_arrivals({visitor})
    end
    if alone == 'waited' then put(SPENT, int(now), visitor) end
    if is_over and not is_newer then count('over_cap') end
    event('admitted', visitor, 'restored', 'order', int(order), 'joined', int(started))
    return admitted_reply(order, started, admit(visitor, started, ends))
  end
  if not place then
    -- The slot was given to another visitor, so this visitor is next.
    restore_place(visitor, order, 'pass')
    redis_call('ZREM', SPENT, visitor)
  end
  redis_call('ZADD', DUE, int(now), visitor)
end

local function keep_or_restore_session(...)
  return keep_session(...) or restore_session(...)
end

local function waiting_reply_to(visitor, order)
  return poll_reply(visitor, order, 0, 0)
end

-- Answers the visitors who have no reply yet.
local function answer_each(ARGV, replies, answer)
  local n = 0
  for i = 6, #ARGV, 5 do
    n = n + 1
    replies[n] = replies[n] or answer(ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]),
      tonumber(ARGV[i + 3]), ARGV[i + 4])
  end
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  measure_start()
  local replies = {}
  -- Before sessions expire, because a valid pass must find its session.
  answer_each(ARGV, replies, keep_session)
  expire()
  answer_each(ARGV, replies, keep_or_restore_session)
  call_next()
  answer_each(ARGV, replies, waiting_reply_to)
  return finish_with(replies)
end
