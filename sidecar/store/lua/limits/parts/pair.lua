-- @include "limits/parts/batch"
-- The state of a key as two numbers in a text, which cost less than a hash: the last moment that
-- was promised, and what was in use then.
local last, used

local function load()
  local pair = redis_call('GET', state)
  local at, amount = string.match(pair or '0 0', '(%S+) (%S+)')
  last, used = tonumber(at), tonumber(amount)
  return last
end

local function take(at, after)
  last, used = at, after
end

local function save(ends)
  redis_call('SET', state, int(last) .. string.format(' %.17g', used), 'PX',
    int(life_ms(ends)))
end
