-- Decides after what time a waiting page polls again.
local poll_interval_ms
do
-- Visitors with fewer visitors ahead than this poll often, even in a slow queue.
local NEAR_THE_HEAD = 5

-- Returns the poll interval, in ms: heartbeat_interval if it is set, else a tenth of `wait` (ms;
-- nil: unknown), from 2 s to 60 s. `jitter`, from 0 to 1, adds up to a quarter, so that visitors
-- who joined together do not poll together.
function poll_interval_ms(ahead, wait, jitter)
  if phase == PREQUEUE then
    -- At the opening all visitors want to learn their position. Spread their polls over a time in
    -- which the replicas can serve them.
    local till_opening = current_event.opens_at - now
    if till_opening < math.min(48000, timeout_ms / 4) then
      local spread_ms = math.min(20000, timeout_ms / 4, 2000 + size(WAITING) / 5)
      return math.floor(math.max(1000, till_opening + jitter * spread_ms))
    end
    ahead = NEAR_THE_HEAD -- the interval must not reveal the position
  end
  local refresh = (room.heartbeat_interval or 2) * 1000
  if not room.heartbeat_interval then
    if ahead >= NEAR_THE_HEAD then
      local tenth = (wait or 600000) / 10
      if tenth > 2000 then refresh = tenth < 48000 and tenth or 48000 end
    end
    refresh = refresh * (1 + jitter / 4)
  end
  if refresh > timeout_ms / 2 then refresh = timeout_ms / 2 end
  return refresh - refresh % 1
end
end
