-- Drops sessions that ran out: full ones, and provisional ones that nobody claimed.
-- Returns how many.
local function expire()
  local ended = redis_call('ZRANGEBYSCORE', ACTIVE, '-inf', int(now), 'LIMIT', 0, BOUND)
  for _, visitor in ipairs(ended) do
    redis_call('ZREM', ACTIVE, visitor)
    if redis_call('ZREM', ADMITTED, visitor) == 0 then
      event('expired', visitor, 'no_show')
    elseif not redis_call('ZSCORE', REVOKED, visitor) then
      event('expired', visitor, 'session')
    end
  end
  return #ended
end
