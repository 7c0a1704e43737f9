-- The room once a minute, for two hours: what the dashboard's curves are drawn from. Counters are
-- as they stand, so that any two samples give what happened between them.
local MINUTES_KEPT = 120

local function sample(wait)
  local newest = redis_call('LINDEX', MINUTES, 0)
  local minute = math.floor(now / 60000)
  if newest and cjson.decode(newest).minute >= minute then return end
  local totals, flat = {}, redis_call('HGETALL', STATS)
  for i = 1, #flat, 2 do
    totals[flat[i]] = tonumber(flat[i + 1])
  end
  redis_call('LPUSH', MINUTES, cjson.encode({
    minute = minute, waiting = size(WAITING), active = size(ACTIVE),
    cap = cap, wait_ms = math.floor(wait), totals = totals,
  }))
  redis_call('LTRIM', MINUTES, 0, MINUTES_KEPT - 1)
end
