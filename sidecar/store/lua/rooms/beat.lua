-- Heartbeats by ticket: keeps a place, gives a lost one back, claims a called one.
-- ARGV    from 3 on, for each visitor: id, order, epoch (of its ticket), random number
-- RETURNS shared/standing
-- EVENTS  joined, called, admitted, expired
-- @include "shared/room"
-- @include "shared/expire"
-- @include "shared/call"
-- @include "shared/standing"
measure_start()
expire()

-- First everybody is noted as present, so that the call passes over none of them.
local function arrive(visitor, order, ticket_epoch)
  local score = redis_call('ZSCORE', DUE, visitor)
  if score then
    redis_call('ZADD', DUE, int(now), visitor)
    return early_poll(visitor, score)
  end
  if redis_call('ZSCORE', REVOKED, visitor) then return nil end
  if redis_call('ZSCORE', ACTIVE, visitor) then return 0 end
  if ticket_epoch < epoch then return nil end
  if ticket_epoch > epoch then -- the store was emptied; the ticket is signed, believe it
    epoch = ticket_epoch
    redis_call('HSET', CONFIG, 'epoch', int(epoch))
  end
  join(visitor, order, 'ticket')
  redis_call('ZADD', DUE, int(now), visitor)
  return 0
end

local limits = {}
for i = 3, #ARGV, 4 do
  limits[i] = arrive(ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
end
call_next()
local replies = {}
for i = 3, #ARGV, 4 do
  if limits[i] then
    replies[#replies + 1] = stand(ARGV[i], tonumber(ARGV[i + 1]), limits[i],
      tonumber(ARGV[i + 3]))
  else
    replies[#replies + 1] = refused_reply(GONE, 0)
  end
end
return headed(replies)
