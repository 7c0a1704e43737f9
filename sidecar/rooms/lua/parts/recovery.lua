-- A store that was emptied recovers: no call is made until those who had a session or a place have
-- had time to show their cookies. That it was emptied is known from a replica's memory or a cookie
-- that is older than the room: `known_since`. So it is, for some seconds, where a replica let
-- visitors in, or kept them in, by itself: since `promised_since`. It tells Redis of their
-- passes at once.

-- 0: as ever. 1: some in the queue may still be missing, positions are not known. 2: also, no
-- call is made, until `recovers_until`.
local stage, recovers_until

-- The longest that anybody may be advised to wait with the next poll, and the longest near the
-- head: among as many as could be called at once. Whether an event makes them longer.
local function longest()
  local longest_ms, near_ms = 60000, math.min(60000, session_ms / 8)
  if room.heartbeat_interval then
    longest_ms = whole_ms(room.heartbeat_interval)
    near_ms = longest_ms
  end
  longest_ms, near_ms = math.min(longest_ms, timeout_ms / 2), math.min(near_ms, timeout_ms / 2)
  -- In a pre-queue all of them are far from the head.
  local is_opening = event_on and (stats.recovery or 0) < event_on.opens_at + 60000
  if is_opening then
    longest_ms = math.min(60000, timeout_ms / 2)
    near_ms = math.max(near_ms, 0.525 * longest_ms + 1000)
  end
  return longest_ms, near_ms, is_opening
end

-- `near`: the longest near the head that the replica really gave, ms.
local function begin_recovery(near, known, promised)
  local born, before = stats.born, stats.recovery or 0
  if stats.known then known = math.min(known or stats.known, stats.known) end
  local recovery, is_emptied = before, false
  if known and known < born then
    is_emptied = now - born < 2 * BACKOFF_MS
    recovery = math.max(recovery, born)
  end
  if promised and promised > recovery then recovery = now end
  stage, recovers_until = 0, -math.huge
  local is_over = recovery == before and now - recovery > room.recovery_over_ms
  if recovery == 0 or is_over then return end
  if recovery > before then
    stats.near = is_emptied and -1 or 0
    if stats.lost_since then stats.lost_since = now end -- what an earlier one had lost is over
  end
  recovery = math.min(recovery, now)
  if recovery ~= before then stats.recovery = recovery end

  -- Where one was given, those near the head have two chances to come back. Where none was, their
  -- pages back off.
  if is_emptied and (near or -1) > (stats.near or -1) then stats.near = near end
  local longest_ms, near_ms, is_opening = longest()
  local enough_ms = 1.05 * math.max(60000, near_ms) + 2000
  if (stats.near or -1) >= 0 then
    enough_ms = 2 * math.max(stats.near, is_opening and near_ms or 0)
  end
  -- For some seconds a pass may not be heard of, because nginx keeps the verdict about it.
  local recovery_ms = math.max(room.session_grace_ms + 1000, enough_ms)
  if room.recovery_window then recovery_ms = whole_ms(room.recovery_window) end
  recovers_until = recovery + recovery_ms
  if now < recovers_until then
    stage = 2
  elseif now - recovery < 1.05 * longest_ms + 2000 then -- a page may poll 5 % late
    stage = 1
  end
end
