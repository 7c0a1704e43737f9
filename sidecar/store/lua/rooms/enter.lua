-- Newcomers: a session where a slot is free and nobody waits, else a place in line.
-- ARGV    from 3 on, for each visitor: id, random number in [0, 1)
-- RETURNS shared/standing
-- EVENTS  admitted, joined, called, expired
-- @include "shared/room"
-- @include "shared/expire"
-- @include "shared/call"
-- @include "shared/standing"
measure_start()
expire()
call_next()

-- Whoever waits after a call could not be called, so a newcomer is admitted at once only
-- where nobody does.
local function enter(visitor, draw)
  -- A call that is repeated late must not bring back who has left since.
  if redis_call('ZSCORE', REVOKED, visitor) then return refused_reply(GONE, 0) end
  local known = redis_call('ZSCORE', ACTIVE, visitor)
  if known then return claim(visitor, now * 1000, known) end -- the first reply was lost
  local order = redis_call('ZSCORE', WAITING, visitor)
  if not order then
    order = next_order(draw)
    local waiting = redis_call('ZCARD', WAITING)
    if waiting == 0 and not room.queue_all
      and redis_call('ZCARD', ACTIVE) < room.total_active_users and rate_tokens() >= 1 then
      spend_token()
      event('admitted', visitor, 'at_once')
      return admitted_reply(order, now, admit(visitor, now))
    end
    if room.queueing_method == 'reject' then
      count('rejected')
      return refused_reply(REJECTED, refresh_ms(0, draw))
    end
    if room.max_waiting and waiting >= room.max_waiting then
      count('refused_full')
      return refused_reply(FULL, refresh_ms(waiting, draw))
    end
    join(visitor, order, 'new')
  end
  local ahead = redis_call('ZRANK', WAITING, visitor)
  -- Nobody holds a place for longer than claim_window without a poll: ask in half of it.
  local refresh = math.min(refresh_ms(ahead, draw), math.floor(claim_ms / 2))
  return waiting_reply(order, ahead, refresh, 0)
end

local replies = {}
for i = 3, #ARGV, 2 do
  replies[#replies + 1] = enter(ARGV[i], tonumber(ARGV[i + 1]))
end
return headed(replies)
