-- Stores samples of the room for the dashboard's charts: one a minute for the last two hours, and
-- one every five minutes before that, for 24 hours in total. A sample has the counters' totals, so
-- the difference of two samples is what happened between them.
local sample
do
local MINUTES_KEPT = 120
local SAMPLE_MINUTES = 5
local SAMPLES_KEPT = MINUTES_KEPT + 22 * 60 / SAMPLE_MINUTES

-- Keeps only the first sample of each five minutes among the older ones. Each new sample makes one
-- sample older than MINUTES_KEPT, so checking that one is enough.
local function thin()
  local old, before = unpack(redis_call('LRANGE', MINUTES, MINUTES_KEPT, MINUTES_KEPT + 1))
  if not before then return end
  local function five(sample) return math.floor(cjson.decode(sample).minute / SAMPLE_MINUTES) end
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
