-- Passes that are due for renewal; a session that the store lost comes back from its pass.
-- ARGV    from 6 on, for each visitor: id, order, when its session began, when the pass ends, and
--         '' (a script gave the pass), or of one that a replica gave or made longer while it could
--         not ask: 'new', or 'waited' (its visitor had a place in the queue)
-- RETURNS rooms/parts/standing
-- EVENTS  admitted, joined, called, expired
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"
-- @include "rooms/parts/standing"

-- The reply to a revoked pass, and to one whose session is there; else nil.
local function keep(visitor, order, started, shown)
  flush()
  if redis_call('ZSCORE', REVOKED, visitor) then return refused_reply(GONE, 0) end
  local ends = redis_call('ZSCORE', ACTIVE, visitor)
  if not ends then return nil end
  local began = redis_call('ZSCORE', ADMITTED, visitor)
  if not began then return claim(visitor, order, ends) end
  -- Until when the passes are honoured that were given: of an unused session `ends` says less.
  local promised = ends - room.session_grace_ms
  if is_unused(ends) then
    promised = math.max(shown, unused_until(tonumber(began)) - room.session_grace_ms)
  end
  return admitted_reply(order, started, admit(visitor, started, promised))
end

-- The reply to a pass whose session was lost, if there is a slot; else nil: it waits. Whom a
-- replica let in, or kept in, by itself stays all the same, and so does who came in since the data
-- of a store that has older ones: nobody is called until the room is below its cap. A replica may
-- not have heard our time: what its pass says of the future is not believed.
local function restore(visitor, order, started, ends, alone)
  started, ends = math.min(started, now), math.min(ends, now + session_ms)
  local is_over = size(ACTIVE) >= cap
  reserved.take_back(visitor, now)
  local waits = redis_call('ZSCORE', WAITING, visitor)
  local is_newer = stage == 2 and started > (stats.lost_since or now)
  if alone ~= '' or is_newer or not (waits or is_over) then
    if waits then
      redis_call('ZREM', WAITING, visitor)
      resized(WAITING)
      redis_call('ZREM', DUE, visitor)
      forget_arrivals({visitor})
    end
    if alone == 'waited' then put(SPENT, int(now), visitor) end
    if is_over and not is_newer then count('over_cap') end
    event('admitted', visitor, 'restored', 'order', int(order), 'joined', int(started))
    return admitted_reply(order, started, admit(visitor, started, ends))
  end
  if not waits then
    join(visitor, order, 'pass') -- the slot was given away: the next one is theirs
    redis_call('ZREM', SPENT, visitor)
  end
  redis_call('ZADD', DUE, int(now), visitor)
end

local function keep_or_restore(...)
  return keep(...) or restore(...)
end

local function wait(visitor, order)
  return stand(visitor, order, 0, 0)
end

-- Replies to those who have none yet.
local function each(ARGV, replies, answer)
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
  each(ARGV, replies, keep) -- before anything expires: a pass that verifies must find its session
  expire()
  each(ARGV, replies, keep_or_restore)
  call_next()
  each(ARGV, replies, wait)
  return headed(replies)
end
