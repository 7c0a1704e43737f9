-- Permits that are given back, or end with their lease: each unit is listed by that end, as
-- permit~1, permit~2 and so on. Asking again with the same permit makes its lease begin anew.
-- KEYS, ARGV, RETURNS  limits/parts/batch
-- @include "limits/parts/batch"
-- @include "limits/parts/units"
local function load()
  load_top()
  return 0
end

local function is_held(permit)
  if not permit or string.find(permit, '~~', 1, true) then return false end -- made for this call
  flush()
  local ends = redis_call('ZSCORE', state, permit .. '~1')
  return ends and tonumber(ends) > now
end

local function find(cost, limit, base, permit)
  if not is_held(permit) then return find_units(cost, limit, base, 0) end
  return now, units_from(now), limit, math.max(top_score, now + LENGTH)
end

local function take(_, after, cost, permit)
  top_score = math.max(top_score, now + LENGTH)
  for n = 1, cost do add_unit(int(now + LENGTH), permit .. '~' .. n) end
  taken, taken_from = after, now
end

local function save(ends)
  flush()
  redis_call('ZREMRANGEBYSCORE', state, '-inf', int(now))
  redis_call('PEXPIRE', state, int(life_ms(ends)))
end

-- @include "limits/parts/calls"
