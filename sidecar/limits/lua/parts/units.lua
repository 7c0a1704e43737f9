-- @include "limits/parts/subject"
-- The state of a key as a sorted set of units of cost, each in use for `lasts` from its score on.
local top, top_score -- the member and score of the last unit
local unwritten -- scores and members to add
local taken, taken_from -- how many are in use, and from when on
local asked, answered -- the last look-up of find_units()

local function load_top()
  local found = redis_call('ZRANGE', state, '-1', '-1', 'WITHSCORES')
  top, top_score, unwritten, taken = tonumber(found[1]), tonumber(found[2] or 0), {}, nil
  asked = nil
end

local function flush_units()
  if #unwritten > 0 then redis_call('ZADD', state, unpack(unwritten)) end
  unwritten, asked = {}, nil
end

local function add_unit(score, member)
  unwritten[#unwritten + 1], unwritten[#unwritten + 2] = score, member
end

local function units_from(from)
  if not taken or taken_from ~= from then
    flush_units()
    taken, taken_from = redis_call('ZCOUNT', state, '(' .. int(from), '+inf'), from
  end
  return taken
end

-- Returns the moment at which `cost` units are free, beside moments already given to later calls.
local function find_units(cost, limit, base, lasts)
  if cost > limit then return nil end
  local after = units_from(base - lasts) + cost
  if cost == 0 or after <= limit then
    local ends = math.max(top_score + lasts, cost == 0 and base or base + LENGTH)
    return base, after, limit, ends
  end
  if #unwritten > 0 or asked ~= cost then
    flush_units()
    local rank = int(cost - limit - 1)
    asked, answered = cost, tonumber(redis_call('ZRANGE', state, rank, rank, 'WITHSCORES')[2])
  end
  local at = answered + lasts
  return at, limit, limit, at + LENGTH
end
