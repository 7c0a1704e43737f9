-- The expected wait of somebody with `ahead` people before them, ms; nil if unknown.
local function wait_ms(ahead)
  if room.queue_all or room.total_active_users < 1 then return nil end
  local prior = room.total_active_users / session_ms
  local weight = session_ms / 4
  local calls, drops = stats.calls or 0, stats.drops or 0
  local rate = (calls + prior * weight) / ((stats.busy or 0) + weight)
  if room.new_users_per_minute then
    rate = math.min(rate, room.new_users_per_minute / 60000)
  end
  local share = drops / (calls + drops + 1)
  return (ahead * (1 - share) + 1) / rate
end
