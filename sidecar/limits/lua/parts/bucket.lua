-- @include "limits/parts/time_and_use"
-- The find() of both buckets: adds a cost to a bucket that holds `size` and leaks at the rate
-- limit / window. `filled` is the level times the window, so that it is a whole number. A stored
-- level above `max_used` counts as `max_used`.
local function add_to_bucket(cost, limit, base, size, max_used)
  if limit == 0 or cost > size then return nil end
  local filled = math.floor(used * LENGTH + 0.5) - (base - last) * limit
  filled = math.max(0, math.min(filled, max_used * LENGTH))
  local over = filled + (cost - size) * LENGTH
  local wait = over > 0 and math.ceil(over / limit) or 0
  filled = math.max(0, filled - wait * limit) + cost * LENGTH
  local at = base + wait
  return at, filled / LENGTH, size, at + math.ceil(filled / limit)
end
