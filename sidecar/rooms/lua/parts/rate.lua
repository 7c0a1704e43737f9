-- Enforces new_users_per_minute by a token bucket. It fills evenly and holds the tokens of two
-- seconds (at least one), so no minute has more than 1/30 over the limit.
local function rate_tokens()
  if not per_minute then return math.huge end
  local most = math.max(1, per_minute / 30)
  local since = math.max(0, now - (stats.tokens_at or 0)) -- a new primary's clock may be behind
  local filled = (stats.tokens or most) + since * per_minute / 60000
  stats.tokens = math.min(most, filled)
  stats.tokens_at = now
  return stats.tokens
end

local function spend_token()
  if per_minute then stats.tokens = stats.tokens - 1 end
end

-- Returns how many visitors the next script can call or admit without waiting for a session to end.
-- With a rate limit the number may have a fraction, because tokens accumulate evenly.
local function free_slots()
  local free = cap - size(ACTIVE)
  return math.max(0, math.min(free, rate_tokens()))
end
