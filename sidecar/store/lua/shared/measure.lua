-- @include "shared/wait"
-- What the estimate is made of: how long a slot is held (held_ms over ends, whoever held
-- it and however it ended) and how often somebody in line leaves (drops over waited_ms).
-- All four fade by the end, so that the sums remember about two full rooms and twenty
-- ends more, however long these took. See docs/estimate.md.
local function measure_start()
  local since = now - (stats.measured_at or now)
  stats.measured_at = now
  if since <= 0 then return end
  local active = redis_call('ZCARD', ACTIVE)
  if active > 0 then
    local ends, held_ms = held()
    stats.ends = ends
    stats.held_ms = held_ms + since * active
  end
  stats.waited_ms = (stats.waited_ms or 0) + since * redis_call('ZCARD', WAITING)
end

-- overdue_ms: how much longer than they should the sessions were counted as held, in all,
-- because no script ran when they ended.
local function measure_ends(by, overdue_ms)
  local ends, held_ms = held()
  local kept = math.exp(-by / memory_ends())
  stats.ends = (ends + by) * kept
  stats.held_ms = math.max(held_ms - overdue_ms, 1) * kept
  stats.drops = (stats.drops or 0) * kept
  stats.waited_ms = (stats.waited_ms or 0) * kept
end

local function measure_drops(by)
  stats.drops = (stats.drops or 0) + by
end
