-- @include "limits/parts/algorithm_state"
-- Stores the state of a rate-limited key as a string, which is smaller than a hash. It has two
-- numbers: the time of the last call, and how much of the limit was in use then.
local last, used
local PACED = ' paced' -- the end of the string if the limit paces

local function load_time_and_use()
  local pair = redis_call('GET', state)
  local at, amount = string.match(pair or '0 0', '(%S+) (%S+)')
  last, used = tonumber(at), tonumber(amount)
  return last, string.sub(pair or '', -#PACED) == PACED
end

local function set_time_and_use(at, after)
  last, used = at, after
end

local function save_time_and_use(ends)
  local pair = int(last) .. string.format(' %.17g', used) .. (free and PACED or '')
  redis_call('SET', state, pair, 'PX', int(get_life_ms(ends)))
end

-- Returns an algorithm with this state and the given find().
local function make_algorithm(find)
  return {load = load_time_and_use, find = find, take = set_time_and_use, save = save_time_and_use}
end
