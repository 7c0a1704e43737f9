-- The room once a minute, for two hours, and before that every five minutes, for 24 hours in all:
-- what the dashboard's charts are drawn from. Counters are as they stand, so that any two samples
-- give what happened between them.
local sample
do
local MINUTES_KEPT = 120
local KEPT_MINUTES = 5
local SAMPLES_KEPT = MINUTES_KEPT + 22 * 60 / KEPT_MINUTES

-- Of older samples the first of five minutes stays. With each new sample one gets that old.
local function thin()
  local old, before = unpack(redis_call('LRANGE', MINUTES, MINUTES_KEPT, MINUTES_KEPT + 1))
  if not before then return end
  local function five(sample) return math.floor(cjson.decode(sample).minute / KEPT_MINUTES) end
  if five(old) == five(before) then redis_call('LREM', MINUTES, -1, old) end
end

function sample(wait)
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
  thin()
  redis_call('LTRIM', MINUTES, 0, SAMPLES_KEPT - 1)
end
end
