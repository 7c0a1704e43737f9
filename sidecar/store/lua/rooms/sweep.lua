-- Removes the waiting whose heartbeat stopped, sessions that ran out, and revocations that
-- no token can need any more.
-- ARGV    3 the most places and revocations to remove (600 at most: with those that are
--           called and those that ran out no script touches more than 1,000 members)
-- RETURNS {now, waiting removed, sessions removed, revocations removed, how many left the
--          line by a call, more to do}
-- EVENTS  expired, called
-- @include "shared/room"
-- @include "shared/expire"
-- @include "shared/call"
-- How long a ticket can be shown after it was signed (base/model.py: TICKET_LIFETIME_MS).
local TICKET_MS = 86400000
local HOUR_MS = 3600000

measure_start()
local limit = math.min(600, tonumber(ARGV[3]))

local silent = redis_call('ZRANGEBYSCORE', DUE, '-inf', '(' .. int(now - timeout_ms),
  'LIMIT', 0, limit)
for _, visitor in ipairs(silent) do
  redis_call('ZREM', DUE, visitor)
  redis_call('ZREM', WAITING, visitor)
  event('expired', visitor, 'swept')
end
measure_drops(#silent)

local dead = int(now - math.max(session_ms, TICKET_MS) - HOUR_MS)
local old = redis_call('ZRANGEBYSCORE', REVOKED, '-inf', dead, 'LIMIT', 0, limit - #silent)
for _, visitor in ipairs(old) do
  redis_call('ZREM', REVOKED, visitor)
end

local ended = expire()
local called = call_next()
finish()
local more = #silent + #old == limit or ended == BOUND or called == BOUND
return {now, #silent, ended, #old, called, more and 1 or 0}
