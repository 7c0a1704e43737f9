-- The sums of shared/measure; what was never measured is taken from the settings.
local function held()
  local ends = 2 + room.total_active_users / 20
  if stats.ends then return stats.ends, stats.held_ms end
  return ends, ends * session_ms
end

-- The expected wait of somebody with `ahead` people before them, ms; nil if unknown.
local function wait_ms(ahead)
  if room.queue_all or room.total_active_users < 1 then return nil end
  local ends, held_ms = held()
  local rate = room.total_active_users * ends / held_ms
  if room.new_users_per_minute then
    rate = math.min(rate, room.new_users_per_minute / 60000)
  end
  local leaving = (stats.drops or 0) / ((stats.waited_ms or 0) + 10 * session_ms)
  local left = leaving * (ahead + 1) / rate
  if left < 1e-6 then return (ahead + 1) / rate end
  return math.log(1 + left) / leaving
end
