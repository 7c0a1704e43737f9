-- @include "limits/parts/algorithm_state"
-- Stores the state of a rate-limited key as a sorted set with a member for each unit of cost. A
-- unit is in use for `unit_life` µs after its score.
local top, top_score -- the member and score of the last unit
local unwritten_units -- the scores and members to add to the set
local units_in_use, counted_after -- how many units have a score above `counted_after`
local queried_cost, freed_at -- the cost and the result of the last query of find_time_for_units()

local function load_top()
  local last_unit = redis_call('ZRANGE', state, '-1', '-1', 'WITHSCORES')
  top, top_score = tonumber(last_unit[1]), tonumber(last_unit[2] or 0)
  unwritten_units, units_in_use, queried_cost = {}, nil, nil
end

local function flush_units()
  if #unwritten_units > 0 then redis_call('ZADD', state, unpack(unwritten_units)) end
  unwritten_units, queried_cost = {}, nil
end

local function add_unit(score, member)
  unwritten_units[#unwritten_units + 1], unwritten_units[#unwritten_units + 2] = score, member
end

-- Returns how many units have a score above `from`.
local function count_units_after(from)
  if not units_in_use or counted_after ~= from then
    flush_units()
    units_in_use, counted_after = redis_call('ZCOUNT', state, '(' .. int(from), '+inf'), from
  end
  return units_in_use
end

-- The find() of sliding_window and concurrency, for a call that has no units yet. Returns the time
-- at which `cost` units are available, after all earlier calls.
local function find_time_for_units(cost, limit, base, unit_life)
  if cost > limit then return nil end
  local after = count_units_after(base - unit_life) + cost
  if cost == 0 or after <= limit then
    local ends = math.max(top_score + unit_life, cost == 0 and base or base + LENGTH)
    return base, after, limit, ends
  end
  if #unwritten_units > 0 or queried_cost ~= cost then
    flush_units()
    local rank = int(cost - limit - 1)
    queried_cost = cost
    freed_at = tonumber(redis_call('ZRANGE', state, rank, rank, 'WITHSCORES')[2])
  end
  local at = freed_at + unit_life
  return at, limit, limit, at + LENGTH
end
