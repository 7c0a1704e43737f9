-- Permits that end with their lease, or are given back before: each unit is listed by that end, as
-- permit~1, permit~2 and so on. Asking again with the same permit starts its lease again.
-- @include "limits/parts/units"
local concurrency = {}

function concurrency.load()
  load_top()
  return 0
end

local function is_held(permit)
  if not permit or string.find(permit, '~~', 1, true) then return false end -- made for this call
  flush_units()
  local ends = redis_call('ZSCORE', state, permit .. '~1')
  return ends and tonumber(ends) > now
end

function concurrency.find(cost, limit, base, permit)
  if not is_held(permit) then return find_units(cost, limit, base, 0) end
  return now, units_from(now), limit, math.max(top_score, now + LENGTH)
end

function concurrency.take(_, after, cost, permit)
  top_score = math.max(top_score, now + LENGTH)
  for n = 1, cost do add_unit(int(now + LENGTH), permit .. '~' .. n) end
  taken, taken_from = after, now
end

function concurrency.save(ends)
  flush_units()
  redis_call('ZREMRANGEBYSCORE', state, '-inf', int(now))
  redis_call('PEXPIRE', state, int(life_ms(ends)))
end
