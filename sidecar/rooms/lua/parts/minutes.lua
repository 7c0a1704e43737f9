-- @include "rooms/parts/estimate_wait"
-- @include "rooms/parts/position"
-- Stores samples of the room for the dashboard's charts: one for each minute of the last two hours,
-- and one for every five minutes before that, for 24 hours in total. A sample contains the totals
-- of all counters, so the difference of two samples is what happened between them.
local store_sample
do
local RECENT_SAMPLES, PROMISES_PER_SAMPLE = 120, 4
local SAMPLE_MINUTES = 5
local MAX_SAMPLES = RECENT_SAMPLES + 22 * 60 / SAMPLE_MINUTES

-- Removes a sample that is not among the RECENT_SAMPLES and not the first of its five minutes. Each
-- new sample makes only one sample old, so one check is enough.
local function remove_old_sample()
  local old, before = unpack(redis_call('LRANGE', MINUTES, RECENT_SAMPLES, RECENT_SAMPLES + 1))
  if not before then return end
  local function five_minutes(sample)
    return math.floor(cjson.decode(sample).minute / SAMPLE_MINUTES)
  end
  if five_minutes(old) == five_minutes(before) then redis_call('LREM', MINUTES, -1, old) end
end

-- Logs the waits that some visitors in the queue are promised, so that the history can compare them
-- with the real waits. The visitors are the last one, and others at even distances. An event has
-- the expected wait (ms), how many visitors are called before, and the relative error of the rate
-- in thousandths, from which visitors/estimate.py computes the range. Nothing is promised while the
-- rate is being measured.
local function log_promises()
  local waiting, rate_error = size(WAITING), estimate_rate_error()
  if stage ~= 0 or rate_error >= 1 then return end
  local number = math.min(PROMISES_PER_SAMPLE, waiting)
  for n = 1, number do
    local rank = math.ceil(waiting * n / number) - 1
    local visitor, order = unpack(redis_call('ZRANGE', WAITING, int(rank), int(rank), 'WITHSCORES'))
    local calls = count_calls(tonumber(order), rank)
    local wait = estimate_wait(calls)
    if not wait then return end
    append_event('promised', visitor, 'estimate', 'wait', int(math.floor(wait)),
      'calls', int(calls), 'error', int(math.floor(1000 * rate_error)))
  end
end

-- Stores a sample and logs promises if the minute has no sample yet. `wait`: a newcomer's expected
-- wait, ms (-1: unknown).
function store_sample(wait)
  local newest = redis_call('LINDEX', MINUTES, 0)
  local minute = math.floor(now / 60000)
  if newest and cjson.decode(newest).minute >= minute then return end
  local totals, flat = {}, redis_call('HGETALL', STATS)
  for i = 1, #flat, 2 do
    totals[flat[i]] = tonumber(flat[i + 1])
  end
  local learned = room.adaptive and room.adaptive.mode ~= 'off' and room.learned
  redis_call('LPUSH', MINUTES, cjson.encode({
    minute = minute, waiting = size(WAITING), active = size(ACTIVE),
    cap = cap, wait_ms = math.floor(wait), totals = totals,
    site = learned and {math.floor(learned.ceiling), learned.p90_s, learned.error_share} or nil,
  }))
  remove_old_sample()
  redis_call('LTRIM', MINUTES, 0, MAX_SAMPLES - 1)
  log_promises()
end
end
