-- Handles heartbeats with a ticket: keeps the visitor's place, restores a lost one, or begins the
-- session of a visitor who was called.
-- ARGV    from 6 on, for each visitor: id, order and epoch of the ticket, random number, when the
--         visitor joined, ms, when the ticket was signed, ms (0: just now), address or ''
-- RETURNS rooms/parts/standing
-- EVENTS  joined, called, admitted, expired
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"
-- @include "rooms/parts/heartbeat"
-- @include "rooms/parts/rejoin"

-- Handles the heartbeats of a batch. Returns for each visitor for how long the visitor is over
-- poll_limit, ms (0: not over); REJECTED for a visitor without a session in a closed room; FULL if
-- the address has all its places; nil for a void ticket.
local function handle_heartbeats(visitors, dues, ARGV)
  measure_start()
  expire()
  local limits, has_place = {}, {}
  for n = 1, #visitors do
    local visitor, due, i = visitors[n], dues[n], 7 * n - 1
    if phase == CLOSED then
      limits[n] = redis_call('ZSCORE', ACTIVE, visitor) and 0 or REJECTED
    elseif has_place[visitor] then -- a second tab in the same batch
      limits[n] = 0
    elseif due then
      limits[n] = record_heartbeat(visitor, due + 0, ARGV[i + 1], ARGV[i + 4])
    else
      limits[n] = rejoin(visitor, ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 4]),
        tonumber(ARGV[i + 5]), ARGV[i + 6])
    end
    has_place[visitor] = limits[n] and limits[n] >= 0
  end
  call_next()
  return limits
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  local visitors = batch(ARGV, 7)
  local dues = queue.scores_of(DUE, visitors)
  local limits = not is_quiet(dues) and handle_heartbeats(visitors, dues, ARGV)
  -- The order in the ticket may be outdated: the visitor was moved, reclassified or drawn, or lost
  -- the place and took another one.
  local orders, replies = queue.scores_of(WAITING, visitors), {}
  for n = 1, #visitors do
    local limited, i = limits and limits[n] or 0, 7 * n - 1
    if limits and not limits[n] then
      replies[n] = refused_reply(GONE, 0)
    elseif limited < 0 then
      replies[n] = refused_reply(limited, 60000)
    else
      replies[n] = poll_reply(visitors[n], orders[n] or ARGV[i + 1], limited, ARGV[i + 3],
        ARGV[i + 4], dues[n] and dues[n] + 0)
    end
  end
  return finish_with(replies)
end
