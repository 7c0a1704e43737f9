-- @include "limits/parts/algorithm_state"
-- The returned times of paced calls: the time of a call that was released, or whose client has
-- disconnected, goes to the next call of the same cost.
local MAX_RETURNED = 128
local returned -- permits and times in `free`, read once for each key

local function reset_returned()
  returned = nil
end

-- Returns the earliest returned time for a call of this cost: the index in `returned`, and the
-- time. Searches only the first MAX_RETURNED.
local function find_returned(cost)
  if not free then return nil end
  returned = returned or redis_call('ZRANGEBYSCORE', free, int(now), '+inf', 'WITHSCORES',
    'LIMIT', 0, MAX_RETURNED)
  local prefix = cost .. '~'
  for i = 1, #returned, 2 do
    if string.sub(returned[i], 1, #prefix) == prefix then return i, tonumber(returned[i + 1]) end
  end
end

local function take_returned(i)
  redis_call('ZREM', free, table.remove(returned, i))
  table.remove(returned, i)
end

-- Adds a returned time to those that later calls may take.
local function offer_returned(permit, time)
  redis_call('ZREMRANGEBYSCORE', free, '-inf', '(' .. int(now))
  -- The same permit may have returned another time before, which nobody has taken yet.
  local member = permit
  while redis_call('ZADD', free, 'NX', time, member) == 0 do member = member .. '~' end
  extend_expiry(free, tonumber(time))
end
