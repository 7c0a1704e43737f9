-- Detects outages. An outage is a time longer than `outage_ms` in which no script ran, because
-- Redis was unavailable or all replicas were down. Heartbeats could not arrive then, so nobody
-- counts as silent.

-- `has_outage_just_ended`: whether this script is the first one after an outage. `outage_end`: the
-- time at which the last outage ended, in ms (-math.huge: there was none). Visitors whose
-- heartbeats were due before that time do not count as silent until `spared_until`.
local has_outage_just_ended, outage_end, spared_until
-- The longest time after which a waiting page polls again while polls fail (static/waiting.js):
-- 60 s, 5 % more for delayed timers, and 2 s for the request.
local MAX_BACKOFF_MS = 65000
-- For how long after an outage no session is ended. In this time replicas report the passes that
-- they extended during the outage. The first script after an outage may run before these reports,
-- because it was sent earlier and waited while Redis hung, or because its replica extended no pass.
local REPORT_MS = 2000

local function begin_outage()
  has_outage_just_ended = now - (stats.measured_at or now) > room.outage_ms
  if has_outage_just_ended then stats.back = now end
  outage_end = math.min(stats.back or -math.huge, now)
  spared_until = outage_end + math.max(claim_ms, MAX_BACKOFF_MS)
end
