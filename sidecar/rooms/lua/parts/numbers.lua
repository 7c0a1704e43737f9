-- The numbers in the room's `stats`, as the script changes them (false: not stored), and a set of
-- their names.
local stats, IS_NUMBER
local begin_numbers, save, cache_numbers
do
-- Every script needs EAGER_NUMBERS, so they are read at the start. Each number in LAZY_NUMBERS is
-- read on first use.
local EAGER_NUMBERS = {'measured_at', 'born', 'ends', 'held_ms', 'drops', 'waited_ms', 'recovery',
  'back', 'keys', 'keys_at', 'known'}
local LAZY_NUMBERS = {'last_order', 'tokens', 'tokens_at', 'near', 'address_at', 'drawn_from',
  'shown_lines', 'last_end', 'lost_since', 'credit_1', 'credit_2', 'credit_3', 'credit_4'}
IS_NUMBER = {} -- filled without ipairs, which is not available while a library is loaded
for i = 1, #EAGER_NUMBERS do IS_NUMBER[EAGER_NUMBERS[i]] = true end
for i = 1, #LAZY_NUMBERS do IS_NUMBER[LAZY_NUMBERS[i]] = true end
local stored -- the numbers as Redis has them
local cached_numbers -- what the library caches for the next script; nil once a number was changed
local function put_number(name, value)
  if value then value = value + 0 end
  stored[name] = value
  rawset(stats, name, value)
  return value
end
local function read_number(_, name)
  if not IS_NUMBER[name] then return nil end
  cached_numbers = nil
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
  cached_numbers = {measured_at = values[1], born = values[2], stored = stored, stats = stats}
end

-- Reading the numbers costs a tenth of a poll, so a library caches them if a script has not changed
-- any. They are unchanged in Redis as long as `measured_at` and `born` are, because every script
-- that changes a number changes `measured_at` (rooms/lua/parts/measure.lua).
local function is_current(numbers)
  local values = redis_call('HMGET', STATS, 'measured_at', 'born')
  return values[1] == numbers.measured_at and values[2] == numbers.born
end
function begin_numbers()
  cached_numbers = room.numbers
  room.numbers = nil -- so a script that fails leaves no cache
  if cached_numbers and is_current(cached_numbers) then
    stored, stats = cached_numbers.stored, cached_numbers.stats
  else
    read_numbers()
  end
  if (stats.born or math.huge) > now then stats.born = now end -- a clock may jump back
end

-- Writes the numbers that were changed. redis.call formats them with 17 digits, which lose nothing.
function save()
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
  cached_numbers = nil
  redis_call('HSET', STATS, unpack(fields))
end

-- Caches the numbers at the end of a script that has changed none. Not within the millisecond of
-- `measured_at`, because in that millisecond a replica of another version may change numbers
-- without changing `measured_at`.
function cache_numbers()
  local measured_at = cached_numbers and tonumber(cached_numbers.measured_at or nil)
  if measured_at and now >= math.floor(measured_at) + 1 then room.numbers = cached_numbers end
end
end
