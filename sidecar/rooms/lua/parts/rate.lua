-- Enforces new_users_per_minute with a token bucket: each call or admission takes a token. The
-- bucket holds the tokens of two seconds (at least one), so no minute exceeds the limit by more
-- than 1/30.

-- Fills the bucket, and returns how many tokens it has; math.huge if there is no limit.
local function refill_tokens()
  if not per_minute then return math.huge end
  local max_tokens = math.max(1, per_minute / 30)
  local since = math.max(0, now - (stats.tokens_at or 0)) -- a failover may set the clock back
  local tokens = (stats.tokens or max_tokens) + since * per_minute / 60000
  stats.tokens = math.min(max_tokens, tokens)
  stats.tokens_at = now
  return stats.tokens
end

local function spend_token()
  if per_minute then stats.tokens = stats.tokens - 1 end
end

-- Returns how many visitors can be called or admitted before a session ends. With a rate limit the
-- number may be fractional, because the bucket fills evenly.
local function count_free_slots()
  local free = cap - size(ACTIVE)
  return math.max(0, math.min(free, refill_tokens()))
end
