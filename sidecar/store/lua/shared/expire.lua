-- @include "shared/measure"
-- Drops sessions that ran out: full ones, and provisional ones that nobody claimed.
-- Returns how many.
local function expire()
  flush()
  local ended = redis_call('ZRANGEBYSCORE', ACTIVE, '-inf', int(now), 'WITHSCORES',
    'LIMIT', 0, BOUND)
  if #ended == 0 then return 0 end
  local overdue_ms, visitors = 0, {}
  for i = 1, #ended, 2 do
    visitors[#visitors + 1] = ended[i]
    overdue_ms = overdue_ms + now - tonumber(ended[i + 1])
  end
  local admitted = redis_call('ZMSCORE', ADMITTED, unpack(visitors))
  local revoked = redis_call('ZMSCORE', REVOKED, unpack(visitors))
  redis_call('ZREM', ACTIVE, unpack(visitors))
  redis_call('ZREM', ADMITTED, unpack(visitors))
  for i, visitor in ipairs(visitors) do
    if not admitted[i] then
      event('expired', visitor, 'no_show')
    elseif not revoked[i] then
      event('expired', visitor, 'session')
    end
  end
  measure_ends(#visitors, overdue_ms)
  return #visitors
end
