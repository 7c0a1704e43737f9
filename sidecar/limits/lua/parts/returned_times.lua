-- @include "limits/parts/algorithm_state"
-- Stores the returned times of paced calls. If the permit of a call is released before its time has
-- come, the next call of the same cost gets this time.
local MAX_RETURNED = 128 -- the maximum number of returned times that are searched
local returned -- permits and their times in `free`, read once for each rate-limited key

local function reset_returned_times()
  returned = nil
end

-- Returns the index in `returned` of the earliest time for a call of this cost, and the time.
-- Returns nil if there is none.
local function find_returned_time(cost)
  if not free then return nil end
  returned = returned or redis_call('ZRANGEBYSCORE', free, int(now), '+inf', 'WITHSCORES',
    'LIMIT', 0, MAX_RETURNED)
  local prefix = cost .. '~'
  for i = 1, #returned, 2 do
    if string.sub(returned[i], 1, #prefix) == prefix then return i, tonumber(returned[i + 1]) end
  end
end

local function take_returned_time(i)
  redis_call('ZREM', free, table.remove(returned, i))
  table.remove(returned, i)
end

-- Stores the time of a released permit, so that a later call can take it.
local function store_returned_time(permit, time)
  redis_call('ZREMRANGEBYSCORE', free, '-inf', '(' .. int(now))
  -- The set may still have another time of the same permit, which no call has taken yet.
  local member = permit
  while redis_call('ZADD', free, 'NX', time, member) == 0 do member = member .. '~' end
  extend_expiry(free, tonumber(time))
end
