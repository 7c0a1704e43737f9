-- Detects outages. An outage is a time longer than `outage_ms` without a script, because Redis was
-- unavailable or all replicas were down. No heartbeat could arrive, so nobody counts as silent.
-- `back`: when the last outage ended, ms. A visitor who was due before has until `back_until`.
local has_outage_ended, back, back_until
-- How long a page waits at most before it asks again if nothing answers (static/waiting.js): 60 s,
-- 5 % of delay, and 2 s for the request itself.
local BACKOFF_MS = 65000
-- How long after an outage no session is ended. Within this time replicas report the passes that
-- they extended during the outage. The first script after an outage may come before these reports:
-- it was sent earlier and waited while Redis hung, or its replica extended no pass.
local REPORT_MS = 2000

local function begin_outage()
  has_outage_ended = now - (stats.measured_at or now) > room.outage_ms
  if has_outage_ended then stats.back = now end
  back = math.min(stats.back or -math.huge, now)
  back_until = back + math.max(claim_ms, BACKOFF_MS)
end
