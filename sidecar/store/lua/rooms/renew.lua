-- Passes that are due for renewal; a session that the store lost comes back from its pass.
-- ARGV    from 3 on, for each visitor: id, order, when its session began, when the pass ends
-- RETURNS shared/standing
-- EVENTS  admitted, joined, called, expired
-- @include "shared/room"
-- @include "shared/expire"
-- @include "shared/call"
-- @include "shared/standing"
measure_start()

-- The reply to a revoked pass, and to one whose session is there; else nil.
local function keep(visitor, order, started)
  flush()
  if redis_call('ZSCORE', REVOKED, visitor) then return refused_reply(GONE, 0) end
  local ends = redis_call('ZSCORE', ACTIVE, visitor)
  if not ends then return nil end
  if not redis_call('ZSCORE', ADMITTED, visitor) then return claim(visitor, order, ends) end
  local promised = tonumber(ends) - room.session_grace_ms
  return admitted_reply(order, started, admit(visitor, started, promised))
end

-- The reply to a pass whose session was lost, if there is a slot; else nil: it waits. A replica
-- that had not heard our time may have given the pass by a wrong clock: what it says of the future
-- is not believed.
local function restore(visitor, order, started, ends)
  started, ends = math.min(started, now), math.min(ends, now + session_ms)
  if not redis_call('ZSCORE', WAITING, visitor) then
    if redis_call('ZCARD', ACTIVE) < room.total_active_users then
      event('admitted', visitor, 'restored', 'order', int(order), 'joined', int(started))
      return admitted_reply(order, started, admit(visitor, started, ends))
    end
    join(visitor, order, 'pass') -- the slot was given away: the next one is theirs
    redis_call('ZREM', SPENT, visitor)
  end
  redis_call('ZADD', DUE, int(now), visitor)
end

local replies = {}
local function each(answer)
  local n = 0
  for i = 3, #ARGV, 4 do
    n = n + 1
    replies[n] = replies[n] or answer(ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]),
      tonumber(ARGV[i + 3]))
  end
end

each(keep) -- before anything expires: a pass that still verifies must find its session
expire()
each(function(...) return keep(...) or restore(...) end)
call_next()
each(function(visitor, order) return stand(visitor, int(order), 0, 0) end)
return headed(replies)
