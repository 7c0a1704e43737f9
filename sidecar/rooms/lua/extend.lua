-- Extends a visitor's session, because the site asks for it. The time is counted from now, so a
-- second request does not add to the first.
-- ARGV    6 visitor  7 how long the session lasts from now, ms; at most max_extension counts
-- RETURNS {now, 1}; or, if the visitor has no session, {now, 0}
-- EVENTS  called, expired
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"

-- Returns 1 if the visitor has a session, else 0.
local function extend(visitor, extend_ms)
  local started = redis_call('ZSCORE', ADMITTED, visitor)
  if not started or redis_call('ZSCORE', REVOKED, visitor) then return 0 end
  started = tonumber(started)
  local max_ms = to_ms(room.max_extension or 0)
  local latest_end = compute_pass_end(started, now) + max_ms
  local pass_end = math.min(now + math.min(extend_ms, max_ms), latest_end)
  if pass_end + room.session_grace_ms > tonumber(redis_call('ZSCORE', ACTIVE, visitor)) then
    stats.last_end = math.max(stats.last_end or 0, pass_end)
    store_session(visitor, started, pass_end + room.session_grace_ms)
  end
  return 1
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  measure_elapsed()
  local has_session = extend(ARGV[6], tonumber(ARGV[7]))
  expire()
  call_next()
  finish()
  return {now, has_session}
end
