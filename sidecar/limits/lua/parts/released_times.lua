-- @include "limits/parts/permits"
-- Decides which call gets a time that an earlier call has released.

-- Returns the earliest time that a call of the same cost has released: its index in `released`, and
-- the time. Searches the first MAX_RELEASED only.
local MAX_RELEASED = 128
local function find_released(cost)
  if not free then return nil end
  released = released or redis_call('ZRANGEBYSCORE', free, int(now), '+inf', 'WITHSCORES',
    'LIMIT', 0, MAX_RELEASED)
  local prefix = cost .. '~'
  for i = 1, #released, 2 do
    if string.sub(released[i], 1, #prefix) == prefix then return i, tonumber(released[i + 1]) end
  end
end

local function take_released(i)
  redis_call('ZREM', free, table.remove(released, i))
  table.remove(released, i)
end
