-- Heartbeats by ticket: keeps a place, gives a lost one back, claims a called one.
-- ARGV    from 6 on, for each visitor: id, order, epoch (of its ticket), random number, when it
--         joined, ms
-- RETURNS shared/standing
-- EVENTS  joined, called, admitted, expired
-- @include "shared/room"
-- @include "shared/expire"
-- @include "shared/call"
-- @include "shared/heartbeat"
local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  measure_start()
  expire()
  local visitors, limits, present = batch(ARGV, 5), {}, {}
  local scores = redis_call('ZMSCORE', DUE, unpack(visitors))
  for n = 1, #visitors do
    local visitor, score, i = visitors[n], scores[n], 5 * n + 1
    if phase == CLOSED then
      limits[n] = redis_call('ZSCORE', ACTIVE, visitor) and 0 or -1
    elseif present[visitor] then -- a second tab
      limits[n] = 0
    elseif score then
      limits[n] = arrive(visitor, score + 0, ARGV[i + 1], ARGV[i + 4])
    else
      limits[n] = come_back(visitor, ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 4]))
    end
    present[visitor] = limits[n] ~= nil
  end
  call_next()
  flush()
  -- A ticket may say another: of who was moved, given a class, drawn, or lost a place and took one.
  local orders, replies = redis_call('ZMSCORE', WAITING, unpack(visitors)), {}
  for n = 1, #visitors do
    local limited, i = limits[n], 5 * n + 1
    if not limited then
      replies[n] = refused_reply(GONE, 0)
    elseif limited < 0 then
      replies[n] = refused_reply(REJECTED, 60000)
    else
      replies[n] = stand(visitors[n], orders[n] or ARGV[i + 1], limited, ARGV[i + 3], ARGV[i + 4])
    end
  end
  return headed(replies)
end
