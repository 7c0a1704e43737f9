-- Handles the recovery after Redis was emptied: nobody is called until visitors with a session or a
-- place have had time to send their cookies. Redis was emptied if the room in Redis is younger than
-- `known_since`, the earliest time at which a replica or a cookie knew the room. A shorter recovery
-- follows if a replica admitted visitors or extended their passes while Redis was unavailable,
-- since `promised_since`. The replica reports those passes as soon as Redis is back.

-- The stage of the recovery. 0: none. 1: some visitors may still be missing from the queue, so
-- positions are unknown. 2: nobody is called either, until `recovers_until`.
local stage, recovers_until

-- Returns three values:
--   the longest poll interval that any visitor may have, ms
--   the longest poll interval of the visitors near the head, who could be called at once, ms
--   whether an event that has just opened makes these intervals longer
local function get_longest_intervals()
  local longest_ms, near_ms = 60000, math.min(60000, session_ms / 8)
  if room.heartbeat_interval then
    longest_ms = to_ms(room.heartbeat_interval)
    near_ms = longest_ms
  end
  longest_ms, near_ms = math.min(longest_ms, timeout_ms / 2), math.min(near_ms, timeout_ms / 2)
  -- In a pre-queue every visitor polls like a visitor far from the head.
  local is_opening = current_event and (stats.recovery or 0) < current_event.opens_at + 60000
  if is_opening then
    longest_ms = math.min(60000, timeout_ms / 2)
    near_ms = math.max(near_ms, 0.525 * longest_ms + 1000)
  end
  return longest_ms, near_ms, is_opening
end

-- Decides whether the room is in a recovery, and sets `stage` and `recovers_until`. `told_near_ms`:
-- the longest poll interval that the replica has told visitors near the head.
local function begin_recovery(told_near_ms, known_since, promised_since)
  local born, last_recovery = stats.born, stats.recovery or 0
  if stats.known then known_since = math.min(known_since or stats.known, stats.known) end
  local recovery, is_emptied = last_recovery, false
  if known_since and known_since < born then
    is_emptied = now - born < 2 * MAX_BACKOFF_MS
    recovery = math.max(recovery, born)
  end
  if promised_since and promised_since > recovery then recovery = now end
  stage, recovers_until = 0, -math.huge
  local is_over = recovery == last_recovery and now - recovery > room.recovery_over_ms
  if recovery == 0 or is_over then return end
  if recovery > last_recovery then
    stats.near = is_emptied and -1 or 0
    if stats.lost_since then stats.lost_since = now end -- the old value is of an earlier recovery
  end
  recovery = math.min(recovery, now)
  if recovery ~= last_recovery then stats.recovery = recovery end

  -- If a replica has told visitors near the head a poll interval, the recovery lasts two intervals,
  -- so that they have two chances to come back. Else it lasts until even pages that back off poll.
  if is_emptied and (told_near_ms or -1) > (stats.near or -1) then stats.near = told_near_ms end
  local longest_ms, near_ms, is_opening = get_longest_intervals()
  local enough_ms = 1.05 * math.max(60000, near_ms) + 2000
  if (stats.near or -1) >= 0 then
    enough_ms = 2 * math.max(stats.near, is_opening and near_ms or 0)
  end
  -- A valid pass may not reach Redis for some seconds, because nginx caches the verdict about it.
  local recovery_ms = math.max(room.session_grace_ms + 1000, enough_ms)
  if room.recovery_window then recovery_ms = to_ms(room.recovery_window) end
  recovers_until = recovery + recovery_ms
  if now < recovers_until then
    stage = 2
  elseif now - recovery < 1.05 * longest_ms + 2000 then -- a page may poll 5 % late
    stage = 1
  end
end

-- Begins a recovery if Redis has older data than the replica has read before, because a backup was
-- restored or a failover lost the latest writes. Visitors who were admitted after the time of the
-- data are known only by their passes. `latest_ms`: the latest `measured_at` that the replica has
-- read. The other parameters: as in begin_recovery().
local function recover_from_older_data(latest_ms, told_near_ms, known_since)
  local measured_at = stats.measured_at
  if not measured_at or not latest_ms or latest_ms <= measured_at then return end
  count('behind')
  begin_recovery(told_near_ms, known_since, now)
  stats.lost_since = measured_at
end
