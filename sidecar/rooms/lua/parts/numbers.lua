-- Reads and writes the numbers in the room's hash `stats`, which also has counters
-- (parts/stats.lua).

-- `stats`: a table of the numbers by name (false: not stored), in which scripts change them.
-- IS_NUMBER: the set of their names.
local stats, IS_NUMBER
local begin_numbers, save_numbers, cache_numbers
do
-- The numbers in EAGER_NUMBERS are read at the start, because every script needs them. Each number
-- in LAZY_NUMBERS is read on first use.
local EAGER_NUMBERS = {'measured_at', 'born', 'ends', 'held_ms', 'drops', 'waited_ms', 'recovery',
  'back', 'keys', 'keys_at', 'known', 'guessed'}
local LAZY_NUMBERS = {'last_order', 'tokens', 'tokens_at', 'near', 'address_at', 'drawn_from',
  'shown_lines', 'last_end', 'lost_since', 'credit_1', 'credit_2', 'credit_3', 'credit_4'}
IS_NUMBER = {} -- filled without ipairs, which is not available while a library is loaded
for i = 1, #EAGER_NUMBERS do IS_NUMBER[EAGER_NUMBERS[i]] = true end
for i = 1, #LAZY_NUMBERS do IS_NUMBER[LAZY_NUMBERS[i]] = true end
local stored -- the numbers as Redis has them
-- The numbers to cache for the next script; nil as soon as a number is changed or read on first
-- use.
local cacheable_numbers
local function put_number(name, value)
  if value then value = value + 0 end
  stored[name] = value
  rawset(stats, name, value)
  return value
end
local function read_number(_, name)
  if not IS_NUMBER[name] then return nil end
  cacheable_numbers = nil
  return put_number(name, redis_call('HGET', STATS, name))
end
local ON_DEMAND = {
  __index = read_number,
  __newindex = function(_, name, value)
    read_number(_, name)
    rawset(stats, name, value)
  end,
}
local function read_numbers()
  stored, stats = {}, setmetatable({}, ON_DEMAND)
  local values = redis_call('HMGET', STATS, unpack(EAGER_NUMBERS))
  for i = 1, #EAGER_NUMBERS do put_number(EAGER_NUMBERS[i], values[i]) end
  cacheable_numbers = {measured_at = values[1], born = values[2], stored = stored, stats = stats}
end

-- Returns whether cached numbers are the same as in Redis. They are if `measured_at` and `born` are
-- the same, because every script that changes a number changes `measured_at`
-- (rooms/lua/parts/measure.lua). Numbers are cached because reading them takes a tenth of the time
-- of a poll.
local function is_current(numbers)
  local values = redis_call('HMGET', STATS, 'measured_at', 'born')
  return values[1] == numbers.measured_at and values[2] == numbers.born
end
function begin_numbers()
  cacheable_numbers = room.numbers
  room.numbers = nil -- so that a script that fails leaves no cache
  if cacheable_numbers and is_current(cacheable_numbers) then
    stored, stats = cacheable_numbers.stored, cacheable_numbers.stats
  else
    read_numbers()
  end
  if (stats.born or math.huge) > now then stats.born = now end -- a clock may jump back
end

-- Writes the changed numbers. redis.call formats them with 17 digits, which is exact.
function save_numbers()
  local fields, n = nil, 0
  for name, value in pairs(stats) do
    if value ~= stored[name] then
      fields = fields or {}
      fields[n + 1], fields[n + 2] = name, value
      n = n + 2
      stored[name] = value
    end
  end
  if not fields then return end
  cacheable_numbers = nil
  redis_call('HSET', STATS, unpack(fields))
end

-- Caches the numbers at the end of a script that has changed no number. Does not cache them within
-- the millisecond of `measured_at`, in which a replica of another version may change numbers and
-- leave `measured_at` the same.
function cache_numbers()
  local measured_at = cacheable_numbers and tonumber(cacheable_numbers.measured_at or nil)
  if measured_at and now >= math.floor(measured_at) + 1 then room.numbers = cacheable_numbers end
end
end
