-- Grants permits, which expire at the end of their lease unless they are released earlier. Each
-- unit of cost is a member, with the end of the lease as its score: permit~1, permit~2 and so on.
-- Another call with the same id and cost gets the same permit and renews its lease.
-- @include "limits/parts/unit_set"
local concurrency = {}

function concurrency.load()
  load_top()
  return 0
end

local function is_held(permit)
  -- '~~': the replica generated the id for this call, so the permit is new.
  if not permit or string.find(permit, '~~', 1, true) then return false end
  flush_units()
  local ends = redis_call('ZSCORE', state, permit .. '~1')
  return ends and tonumber(ends) > now
end

function concurrency.find(cost, limit, base, permit)
  if not is_held(permit) then return find_time_for_units(cost, limit, base, 0) end
  return now, count_units_after(now), limit, math.max(top_score, now + LENGTH)
end

function concurrency.take(_, after, cost, permit)
  top_score = math.max(top_score, now + LENGTH)
  for n = 1, cost do add_unit(int(now + LENGTH), permit .. '~' .. n) end
  units_in_use, counted_after = after, now
end

function concurrency.save(ends)
  flush_units()
  redis_call('ZREMRANGEBYSCORE', state, '-inf', int(now))
  redis_call('PEXPIRE', state, int(get_life_ms(ends)))
end
