-- The sums of shared/measure; what was never measured is taken from the settings.
local function memory_ends()
  return 2 * room.total_active_users + 20
end

local function held()
  local ends = 1 + room.total_active_users / 2
  if stats.ends then return stats.ends, stats.held_ms end
  return ends, ends * session_ms
end

local pace
local function measured()
  local ends, held_ms = held()
  pace = {rate = room.total_active_users * ends / held_ms}
  local waiting = redis_call('ZCARD', WAITING)
  local silent = redis_call('ZCOUNT', DUE, '-inf', '(' .. int(now - timeout_ms))
  local lag_ms = 1.25 * timeout_ms
  local memory_ms = memory_ends() / pace.rate
  local fresh = math.exp(-lag_ms / memory_ms)
  local waited_ms = stats.waited_ms or 0
  local seen_ms = math.max(waited_ms / 2, (waited_ms - waiting * memory_ms * (1 - fresh)) / fresh)
  pace.leaving = ((stats.drops or 0) + silent) / (seen_ms + 10 * session_ms)
  local head = redis_call('ZRANGE', WAITING, 0, 0, 'WITHSCORES')
  local head_ms = math.min(lag_ms, now - (head[2] or 0) / 1000)
  pace.alive = (1 - silent / math.max(1, waiting)) / (1 + pace.leaving * head_ms)
  if room.new_users_per_minute then
    pace.rate = math.min(pace.rate, room.new_users_per_minute / 60000)
  end
end

-- The expected wait of somebody with `ahead` people before them, ms; nil if unknown.
local function wait_ms(ahead)
  if room.queue_all or room.total_active_users < 1 then return nil end
  if not pace then measured() end
  local calls = ahead * pace.alive + 1
  local left = pace.leaving * calls / pace.rate
  if left < 1e-6 then return calls / pace.rate end
  return math.log(1 + left) / pace.leaving
end
