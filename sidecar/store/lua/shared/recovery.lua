-- A store that was emptied recovers: no call is made until those who had a session or a place have
-- had time to show their cookies. That it was emptied is known from a replica's memory or a cookie
-- that is older than the room: `known_since`. So it is, for some seconds, where a replica let
-- visitors in, or kept them in, by itself: since `promised_since`. It tells Redis of their passes
-- at once.
stats.born = math.min(stats.born, now) -- a clock may jump back
local known, promised = room.known_since or stats.born, room.promised_since or 0
local recovery = stats.recovery or 0
local is_emptied = known < stats.born and now - stats.born < 2 * BACKOFF_MS
if known < stats.born then recovery = math.max(recovery, stats.born) end
if promised > recovery then recovery = now end
if recovery > (stats.recovery or 0) then stats.near = is_emptied and -1 or 0 end
if recovery > 0 then stats.recovery = math.min(recovery, now) end

-- The longest that anybody may be told to wait with the next poll, and the longest near the
-- head: among as many as could be called at once.
local longest_ms, near_ms
if room.heartbeat_interval then
  longest_ms, near_ms = whole_ms(room.heartbeat_interval), whole_ms(room.heartbeat_interval)
else
  longest_ms, near_ms = 60000, math.min(60000, session_ms / 8)
end
longest_ms, near_ms = math.min(longest_ms, timeout_ms / 2), math.min(near_ms, timeout_ms / 2)
-- In a pre-queue all of them are far from the head.
local is_opening = event_on and (stats.recovery or 0) < event_on.opens_at + 60000
if is_opening then
  longest_ms = math.min(60000, timeout_ms / 2)
  near_ms = math.max(near_ms, 0.525 * longest_ms + 1000)
end

-- The longest near the head that a replica really told, where one was there before: then those
-- near the head have two chances to come back. Where none was, their pages back off.
if is_emptied and (room.near or -1) > (stats.near or -1) then stats.near = room.near end
local enough_ms = 1.05 * math.max(60000, near_ms) + 2000
if (stats.near or -1) >= 0 then
  enough_ms = 2 * math.max(stats.near, is_opening and near_ms or 0)
end
-- For some seconds a pass may not be heard of, because nginx keeps the verdict about it.
local recovery_ms = math.max(room.session_grace_ms + 1000, enough_ms)
if room.recovery_window then recovery_ms = whole_ms(room.recovery_window) end

-- Until when no call is made, and until when somebody ahead may still be missing, ms.
local function recovers_until()
  return (stats.recovery or -math.huge) + recovery_ms
end
local function is_recovering()
  return now < recovers_until()
end
-- 0: as ever. 1: some in line may still be missing, positions are not known. 2: also, no
-- call is made.
local function recovery_stage()
  if is_recovering() then return 2 end
  local since = now - (stats.recovery or -math.huge)
  return since < 1.05 * longest_ms + 2000 and 1 or 0 -- a page may poll 5 % late
end
