-- The room's numbers. All scripts need the first; the others, of which most scripts need none, are
-- read when one is asked for.
local OFTEN = {'measured_at', 'born', 'ends', 'held_ms', 'drops', 'waited_ms', 'recovery', 'back'}
local SELDOM = {'last_order', 'tokens', 'tokens_at', 'near', 'address_at', 'drawn_from',
  'shown_lines', 'last_end', 'credit_1', 'credit_2', 'credit_3', 'credit_4'}
local IS_OFTEN, IS_SELDOM = {}, {}
for i = 1, #OFTEN do IS_OFTEN[OFTEN[i]] = true end
for i = 1, #SELDOM do IS_SELDOM[SELDOM[i]] = true end
-- As the store has them, false where it has none. `stats` has what was changed since the last
-- save(), and is read through to these.
local stored, stats
local THROUGH = {}

local function read_numbers(names)
  local values = redis_call('HMGET', STATS, unpack(names))
  for i = 1, #names do
    local value = values[i]
    stored[names[i]] = value and value + 0
  end
end
local ON_DEMAND = {__index = function(_, name)
  if not IS_SELDOM[name] then return nil end
  read_numbers(SELDOM)
  return stored[name]
end}

local function begin_numbers()
  stored = {}
  read_numbers(OFTEN)
  setmetatable(stored, ON_DEMAND)
  THROUGH.__index = stored
  stats = setmetatable({}, THROUGH)
  if (stored.born or math.huge) > now then stats.born = now end -- a clock may jump back
end

-- Writes those that were changed, with the 17 digits that they need: so redis.call does.
local function save()
  local fields, n = {}, 0
  for name, value in pairs(stats) do
    stored[name] = value
    fields[n + 1], fields[n + 2] = name, value
    n = n + 2
  end
  if n == 0 then return end
  stats = setmetatable({}, THROUGH)
  redis_call('HSET', STATS, unpack(fields))
end
