-- Heartbeats by ticket: keeps a place, gives a lost one back, claims a called one.
-- ARGV    from 3 on, for each visitor: id, order, epoch (of its ticket), random number, when it
--         joined, ms
-- RETURNS shared/standing
-- EVENTS  joined, called, admitted, expired
-- @include "shared/room"
-- @include "shared/expire"
-- @include "shared/call"
-- @include "shared/standing"
measure_start()
expire()

-- First everybody is noted as present, so that the call passes over none of them.
-- Its `due` is moved at once only where the call would drop it; else once, by stand().
-- Returns how long it polled too often (ms), nil for a ticket that is worth nothing, -1 where the
-- room is closed.
local function arrive(visitor, score, order, ticket_epoch, joined)
  if phase == CLOSED then return redis_call('ZSCORE', ACTIVE, visitor) and 0 or -1 end
  if score then
    if phase == PREQUEUE and joined < event_begins and is_drawn(tonumber(order)) then
      put_in_line(visitor, joined * 1000, joined * 1000) -- drawn for another one: behind this one
    end
    local due = tonumber(score)
    if silent_from(due) < now then redis_call('ZADD', DUE, int(now), visitor) end
    return early_poll(visitor, due)
  end
  if redis_call('ZSCORE', REVOKED, visitor) then return nil end
  if redis_call('ZSCORE', ACTIVE, visitor) then return 0 end
  if redis_call('ZSCORE', SPENT, visitor) then return nil end
  -- A place that was lost and is of before the event: its visitor is a newcomer to it.
  if joined < event_begins
    and (is_drawn(tonumber(order)) or phase == PREQUEUE or room.between_events ~= 'open') then
    return nil
  end
  ticket_epoch = tonumber(ticket_epoch)
  if ticket_epoch < epoch then return nil end
  if ticket_epoch > epoch then -- the store was emptied; the ticket is signed, believe it
    epoch = ticket_epoch
    redis_call('HSET', CONFIG, 'epoch', int(epoch))
  end
  join(visitor, order, 'ticket', joined)
  redis_call('ZADD', DUE, int(now), visitor)
  return 0
end

local visitors = batch(5)
local scores = redis_call('ZMSCORE', DUE, unpack(visitors))
local limits, present = {}, {}
for n, visitor in ipairs(visitors) do
  if present[visitor] then -- a second tab
    limits[n] = 0
  else
    local i = 5 * n
    limits[n] = arrive(visitor, scores[n], ARGV[i - 1], ARGV[i], tonumber(ARGV[i + 2]))
    present[visitor] = limits[n] ~= nil and limits[n] ~= -1
  end
end
call_next()
flush()
local orders = redis_call('ZMSCORE', WAITING, unpack(visitors)) -- an operator may have moved them
local replies = {}
for n, visitor in ipairs(visitors) do
  if limits[n] == -1 then
    replies[n] = refused_reply(REJECTED, 60000)
  elseif limits[n] then
    local i = 5 * n
    replies[n] = stand(visitor, orders[n] or ARGV[i - 1], limits[n], ARGV[i + 1],
      tonumber(ARGV[i + 2]))
  else
    replies[n] = refused_reply(GONE, 0)
  end
end
return headed(replies)
