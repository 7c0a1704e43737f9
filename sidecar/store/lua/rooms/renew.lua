-- Passes that are due for renewal; a session that the store lost comes back from its pass.
-- ARGV    from 3 on, for each visitor: id, order, when its session began
-- RETURNS shared/standing
-- EVENTS  admitted, joined, called, expired
-- @include "shared/room"
-- @include "shared/expire"
-- @include "shared/call"
-- @include "shared/standing"
measure_start()

local function renew(visitor, order, started)
  local ends = redis_call('ZSCORE', ACTIVE, visitor)
  if redis_call('ZSCORE', REVOKED, visitor) then return refused_reply(GONE, 0) end
  if ends then
    if room.disable_session_renewal then
      return admitted_reply(order, started, tonumber(ends) - room.session_grace_ms)
    end
    if not redis_call('ZSCORE', ADMITTED, visitor) then event('admitted', visitor, 'claimed') end
    return admitted_reply(order, started, admit(visitor, started))
  end
  local ahead = redis_call('ZRANK', WAITING, visitor)
  if not ahead then
    if redis_call('ZCARD', ACTIVE) < room.total_active_users then
      event('admitted', visitor, 'restored')
      return admitted_reply(order, started, admit(visitor, started))
    end
    join(visitor, order, 'pass') -- the slot was given away: the next one is theirs
    ahead = redis_call('ZRANK', WAITING, visitor)
  end
  local refresh = refresh_ms(ahead, 0)
  redis_call('ZADD', DUE, int(now + refresh), visitor)
  return waiting_reply(order, ahead, refresh, 0)
end

-- Before anything expires: a pass that still verifies must find its session.
local replies = {}
for i = 3, #ARGV, 3 do
  replies[#replies + 1] = renew(ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
end
expire()
call_next()
return headed(replies)
