-- How soon a waiting page polls again.
local refresh_ms
do
-- The first few in the queue look often, however slowly it moves: theirs is the next slot.
local NEAR_THE_HEAD = 5

-- A tenth of the wait (ms, nil if unknown), 2 s to 60 s, or as the room fixes it; up to a
-- quarter is added at random so that those who came together do not poll together.
function refresh_ms(ahead, wait, jitter)
  if phase == PREQUEUE then
    -- All of them want to know their place when it opens: as many at a time as replicas can serve.
    local till_opening = event_on.opens_at - now
    if till_opening < math.min(48000, timeout_ms / 4) then
      local spread = math.min(20000, timeout_ms / 4, 2000 + size(WAITING) / 5)
      return math.floor(math.max(1000, till_opening + jitter * spread))
    end
    ahead = NEAR_THE_HEAD -- the interval must not tell visitors where they stand
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
