-- @include "limits/parts/subject"
-- The state of a key as two numbers in a text, which is smaller than a hash: the last moment that
-- was given to a call, and how much was in use then.
local last, used
local PACED = ' paced'

local function load_pair()
  local pair = redis_call('GET', state)
  local at, amount = string.match(pair or '0 0', '(%S+) (%S+)')
  last, used = tonumber(at), tonumber(amount)
  return last, string.sub(pair or '', -#PACED) == PACED
end

local function take_pair(at, after)
  last, used = at, after
end

local function save_pair(ends)
  local pair = int(last) .. string.format(' %.17g', used) .. (free and PACED or '')
  redis_call('SET', state, pair, 'PX', int(life_ms(ends)))
end

local function algorithm_by(find)
  return {load = load_pair, find = find, take = take_pair, save = save_pair}
end
