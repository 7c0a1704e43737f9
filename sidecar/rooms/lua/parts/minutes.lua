-- Stores samples of the room for the dashboard's charts: one for each minute of the last two hours,
-- and one for every five minutes before that, for 24 hours in total. A sample contains the totals
-- of all counters, so the difference of two samples is what happened between them.
local store_sample
do
local MINUTES_KEPT = 120
local SAMPLE_MINUTES = 5
local SAMPLES_KEPT = MINUTES_KEPT + 22 * 60 / SAMPLE_MINUTES

-- Removes a sample that is older than MINUTES_KEPT and not the first of its five minutes. With each
-- new sample only one older sample passes this age, so one check is enough.
local function thin_out()
  local old, before = unpack(redis_call('LRANGE', MINUTES, MINUTES_KEPT, MINUTES_KEPT + 1))
  if not before then return end
  local function five_minutes(sample)
    return math.floor(cjson.decode(sample).minute / SAMPLE_MINUTES)
  end
  if five_minutes(old) == five_minutes(before) then redis_call('LREM', MINUTES, -1, old) end
end

-- Stores a sample if the minute has none yet. `wait`: a newcomer's expected wait, ms (-1: unknown).
function store_sample(wait)
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
  thin_out()
  redis_call('LTRIM', MINUTES, 0, SAMPLES_KEPT - 1)
end
end
