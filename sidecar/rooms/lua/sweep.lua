-- Removes waiting visitors whose heartbeats stopped, expired sessions, and records about expired
-- tokens. Then calls the next visitors.
-- ARGV    6 the maximum number of places and records to remove. More than 100 are never removed,
--         because the script also ends sessions and calls visitors, which blocks Redis for 5 ms.
-- RETURNS a list:
--         now
--         how many places were removed
--         how many sessions were removed
--         how many records of revoked passes and spent tickets were removed
--         how many visitors call_next() took from the head of the queue
--         1 if there is more to do, else 0
-- EVENTS  expired, called
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"
-- @include "rooms/parts/places_per_address"
-- How long a ticket is valid after it was signed (visitors/model.py: TICKET_LIFETIME_MS).
local TICKET_MS = 86400000
local HOUR_MS, MINUTE_MS = 3600000, 60000

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  measure_elapsed()
  local limit = math.min(100, tonumber(ARGV[6]))

  local low, high = get_overdue_range()
  local silent, dues = queue.split(
    redis_call('ZRANGEBYSCORE', DUE, low, high, 'WITHSCORES', 'LIMIT', 0, limit))
  if #silent > 0 then
    for i, visitor in ipairs(silent) do
      local place = {'position', (redis_call('ZRANK', WAITING, visitor) or 0) + 1}
      local why = is_unused(tonumber(dues[i])) and 'unused' or 'swept'
      event('expired', visitor, why, unpack(place, phase == PREQUEUE and 3 or 1))
    end
    redis_call('ZREM', DUE, unpack(silent))
    redis_call('ZREM', WAITING, unpack(silent))
    redis_call('ZREM', RESERVED, unpack(silent))
    forget_size(WAITING)
    remove_arrivals(silent)
  end
  if phase ~= CLOSED then measure_drops(#silent) end -- in a closed room visitors need not poll

  -- Removes no revocation while a pass may be valid that was issued with a longer session_duration.
  local has_longer_pass = (stats.last_end or 0) > now + session_ms
  local latest = has_longer_pass and '-inf' or int(now - session_ms - MINUTE_MS)
  local revoked = redis_call('ZRANGEBYSCORE', REVOKED, '-inf', latest, 'LIMIT', 0, limit - #silent)
  if #revoked > 0 then redis_call('ZREMRANGEBYRANK', REVOKED, 0, #revoked - 1) end
  local removed = #silent + #revoked
  latest = int(now - math.max(session_ms, TICKET_MS) - HOUR_MS)
  local spent = redis_call('ZRANGEBYSCORE', SPENT, '-inf', latest, 'LIMIT', 0, limit - removed)
  if #spent > 0 then redis_call('ZREMRANGEBYRANK', SPENT, 0, #spent - 1) end
  removed = removed + #spent
  -- Removes grants that expired an hour ago: even a replica whose clock is behind refuses them.
  local grants = redis_call('ZRANGEBYSCORE', GRANTS, '-inf', int(now - HOUR_MS), 'LIMIT', 0, limit)
  if #grants > 0 then redis_call('ZREMRANGEBYRANK', GRANTS, 0, #grants - 1) end

  local ended = expire()
  local called = call_next()
  local has_more = remove_addresses(limit)
  finish()
  has_more = has_more or removed == limit or ended == LOOP_LIMIT or called == LOOP_LIMIT
  return {now, #silent, ended, removed - #silent, called, has_more and 1 or 0}
end
