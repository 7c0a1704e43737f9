-- The room's numbers as the script changes them, false where there is none; and their names.
local stats, IS_NUMBER
local begin_numbers, save, keep_numbers
do
-- All scripts need the first; each of the others is read when it is asked for.
local OFTEN = {'measured_at', 'born', 'ends', 'held_ms', 'drops', 'waited_ms', 'recovery', 'back',
  'keys', 'keys_at', 'known'}
local SELDOM = {'last_order', 'tokens', 'tokens_at', 'near', 'address_at', 'drawn_from',
  'shown_lines', 'last_end', 'lost_since', 'credit_1', 'credit_2', 'credit_3', 'credit_4'}
IS_NUMBER = {} -- made without ipairs, which is not to be had while a library is loaded
for i = 1, #OFTEN do IS_NUMBER[OFTEN[i]] = true end
for i = 1, #SELDOM do IS_NUMBER[SELDOM[i]] = true end
local stored, kept -- as the store has them
local function put_number(name, value)
  if value then value = value + 0 end
  stored[name] = value
  rawset(stats, name, value)
  return value
end
local function read_number(_, name)
  if not IS_NUMBER[name] then return nil end
  kept = nil
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
  local values = redis_call('HMGET', STATS, unpack(OFTEN))
  for i = 1, #OFTEN do put_number(OFTEN[i], values[i]) end
  kept = {measured_at = values[1], born = values[2], stored = stored, stats = stats}
end

-- Reading them is a tenth of a poll, so a library keeps what a script that changed none of them
-- read. They are the same while `measured_at` is, in the same store: every script that changes one
-- changes that (rooms/lua/parts/measure.lua).
local function is_current(numbers)
  local values = redis_call('HMGET', STATS, 'measured_at', 'born')
  return values[1] == numbers.measured_at and values[2] == numbers.born
end
function begin_numbers()
  kept = room.numbers
  room.numbers = nil -- nothing is kept of a script that fails
  if kept and is_current(kept) then
    stored, stats = kept.stored, kept.stats
  else
    read_numbers()
  end
  if (stats.born or math.huge) > now then stats.born = now end -- a clock may jump back
end

-- Writes those that were changed, with the 17 digits that they need: so redis.call does.
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
  kept = nil
  redis_call('HSET', STATS, unpack(fields))
end

-- At the end of a script that has changed nothing. Not in the millisecond in which they were
-- measured: replicas of another version may change some and leave `measured_at` as it is then.
function keep_numbers()
  local measured_at = kept and tonumber(kept.measured_at or nil)
  if measured_at and now >= math.floor(measured_at) + 1 then room.numbers = kept end
end
end
