-- Removes the waiting whose heartbeat stopped, sessions that ran out, and revocations that
-- no token can need any more.
-- ARGV    3 the most members to remove of each kind (1,000 at most)
-- RETURNS {now, waiting removed, sessions removed, revocations removed, called, more to do}
-- EVENTS  expired, called
-- @include "shared/room"
-- @include "shared/expire"
-- @include "shared/call"
measure_start()
local limit = math.min(1000, tonumber(ARGV[3]))

local silent = redis_call('ZRANGEBYSCORE', DUE, '-inf', '(' .. int(now - timeout_ms),
  'LIMIT', 0, limit)
for _, visitor in ipairs(silent) do
  redis_call('ZREM', DUE, visitor)
  redis_call('ZREM', WAITING, visitor)
  event('expired', visitor, 'swept')
end
measure_drops(#silent)

-- A revoked visitor's pass is refused by its own end at the latest; its ticket an hour on.
local old = redis_call('ZRANGEBYSCORE', REVOKED, '-inf', int(now - session_ms - 3600000),
  'LIMIT', 0, limit)
for _, visitor in ipairs(old) do
  redis_call('ZREM', REVOKED, visitor)
end

local ended = expire()
local called = call_next()
local more = #silent == limit or #old == limit or ended == BOUND
finish()
return {now, #silent, ended, #old, called, more and 1 or 0}
