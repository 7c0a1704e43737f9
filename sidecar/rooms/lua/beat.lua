-- Handles a batch of heartbeats, each sent with a ticket. Keeps the visitor's place in the queue,
-- restores the place if it was lost, or begins the session if the visitor was called.
-- ARGV    from 6 on, for each visitor: id, order in the ticket, epoch in the ticket, random number
--         in [0, 1), when the visitor joined (ms), when the ticket was signed (ms, 0: just now), IP
--         address or ''
-- RETURNS rooms/parts/standing
-- EVENTS  joined, called, admitted, expired
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"
-- @include "rooms/parts/heartbeat"
-- @include "rooms/parts/rejoin"

-- Returns one value for each visitor:
--   the time in ms until the visitor may poll again; 0 if the visitor is not over poll_limit
--   REJECTED if the room is closed and the visitor has no session
--   FULL if the visitor's IP address has all its places
--   nil if the ticket is void
local function handle_heartbeats(visitors, dues, ARGV)
  measure_elapsed()
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
  local visitors = read_visitors(ARGV, 7)
  local dues = queue.scores_of(DUE, visitors)
  local limits = not are_routine_polls(dues) and handle_heartbeats(visitors, dues, ARGV)
  -- The order in the ticket may be outdated: since then the visitor may have been moved,
  -- reclassified or drawn, or may have lost the place and taken another one.
  local orders, replies = queue.scores_of(WAITING, visitors), {}
  for n = 1, #visitors do
    local limited, i = limits and limits[n] or 0, 7 * n - 1
    if limits and not limits[n] then
      replies[n] = make_refusal(GONE, 0)
    elseif limited < 0 then
      replies[n] = make_refusal(limited, 60000)
    else
      replies[n] = reply_to_poll(visitors[n], orders[n] or ARGV[i + 1], limited, ARGV[i + 3],
        ARGV[i + 4], dues[n] and dues[n] + 0)
    end
  end
  return finish_batch(replies)
end
