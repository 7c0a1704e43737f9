-- Heartbeats by ticket: keeps a place, gives a lost one back, claims a called one.
-- ARGV    from 6 on, for each visitor: id, order, epoch (of its ticket), random number, when it
--         joined and when its ticket was signed, ms (0: just now), address or ''
-- RETURNS rooms/parts/standing
-- EVENTS  joined, called, admitted, expired
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"
-- @include "rooms/parts/heartbeat"

-- How long each polled too often (ms); REJECTED: no place and no session in a closed room; FULL:
-- the address has its places; nil: the ticket is worth nothing.
local function hear(visitors, dues, ARGV)
  measure_start()
  expire()
  local limits, present = {}, {}
  for n = 1, #visitors do
    local visitor, due, i = visitors[n], dues[n], 7 * n - 1
    if phase == CLOSED then
      limits[n] = redis_call('ZSCORE', ACTIVE, visitor) and 0 or REJECTED
    elseif present[visitor] then -- a second tab
      limits[n] = 0
    elseif due then
      limits[n] = arrive(visitor, due + 0, ARGV[i + 1], ARGV[i + 4])
    else
      limits[n] = come_back(visitor, ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 4]),
        tonumber(ARGV[i + 5]), ARGV[i + 6])
    end
    present[visitor] = limits[n] and limits[n] >= 0
  end
  call_next()
  return limits
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  local visitors = batch(ARGV, 7)
  local dues = queue.scores_of(DUE, visitors)
  local limits = not is_quiet(dues) and hear(visitors, dues, ARGV)
  -- A ticket may say another: of who was moved, given a class, drawn, or lost a place and took one.
  local orders, replies = queue.scores_of(WAITING, visitors), {}
  for n = 1, #visitors do
    local limited, i = limits and limits[n] or 0, 7 * n - 1
    if limits and not limits[n] then
      replies[n] = refused_reply(GONE, 0)
    elseif limited < 0 then
      replies[n] = refused_reply(limited, 60000)
    else
      replies[n] = stand(visitors[n], orders[n] or ARGV[i + 1], limited, ARGV[i + 3], ARGV[i + 4],
        dues[n] and dues[n] + 0)
    end
  end
  return headed(replies)
end
