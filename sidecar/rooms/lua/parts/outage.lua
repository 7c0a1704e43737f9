-- An outage: no script ran for longer than `outage_ms`, because Redis was unavailable or all
-- replicas were down. Nobody could be heard, so nobody counts as silent. `back`: when it ended. A
-- visitor who was due before then has until `back_until` to arrive.
local has_just_returned, back, back_until
-- The longest that a page waits before it asks again where nothing answers (static/waiting.js):
-- 60 s, 5 % late, and the request itself.
local BACKOFF_MS = 65000
-- Within this time replicas tell of the passes that they made longer meanwhile, and until then no
-- session is over: the first script may have been sent before all of that, by one that waited in
-- the connection while Redis hung, or by a replica that has nothing to tell.
local TELLING_MS = 2000

local function begin_outage()
  has_just_returned = now - (stats.measured_at or now) > room.outage_ms
  if has_just_returned then stats.back = now end
  back = math.min(stats.back or -math.huge, now)
  back_until = back + math.max(claim_ms, BACKOFF_MS)
end
