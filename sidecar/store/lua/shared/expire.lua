-- @include "shared/measure"
-- Drops sessions that ran out: full ones, and provisional ones that nobody claimed.
-- Returns how many.
local function expire()
  local ended = redis_call('ZRANGEBYSCORE', ACTIVE, '-inf', int(now), 'WITHSCORES',
    'LIMIT', 0, BOUND)
  local overdue_ms = 0
  for i = 1, #ended, 2 do
    local visitor = ended[i]
    overdue_ms = overdue_ms + now - tonumber(ended[i + 1])
    redis_call('ZREM', ACTIVE, visitor)
    if redis_call('ZREM', ADMITTED, visitor) == 0 then
      event('expired', visitor, 'no_show')
    elseif not redis_call('ZSCORE', REVOKED, visitor) then
      event('expired', visitor, 'session')
    end
  end
  if #ended > 0 then measure_ends(#ended / 2, overdue_ms) end
  return #ended / 2
end
