-- @include "limits/parts/subject"
-- The moments that calls were given, and those that were given back.
local permits, booked -- the keys, if the limit needs them
local REMEMBERED -- how long an id is remembered, µs
local freed, remembered, until_booked

local function open_permits()
  freed, remembered, until_booked = nil, nil, nil
end

local function is_made(id)
  return string.byte(id) == 126
end

-- Returns the moment that this call was given before.
local function recall(permit, id)
  if not permits or id == '' or is_made(id) then return nil end
  local at = tonumber(redis_call('ZSCORE', permits, permit) or nil)
  return at and at > now - REMEMBERED and at
end

local function remember(permit, id, at)
  if not permits or id == '' then return end
  if not is_made(id) then
    redis_call('ZADD', permits, int(at), permit)
    remembered = math.max(remembered or 0, at)
  elseif at > now then
    redis_call('ZADD', booked, int(at), permit)
    until_booked = math.max(until_booked or 0, at)
  end
end

-- Returns the earliest moment that a call of the same cost gave back: its place in the list, and
-- the moment. Looks at the first MOST_FREED only.
local MOST_FREED = 128
local function freed_for(cost)
  if not free then return nil end
  freed = freed or redis_call('ZRANGEBYSCORE', free, int(now), '+inf', 'WITHSCORES', 'LIMIT', 0,
    MOST_FREED)
  local begins = cost .. '~'
  for i = 1, #freed, 2 do
    if string.sub(freed[i], 1, #begins) == begins then return i, tonumber(freed[i + 1]) end
  end
end

local function take_freed(i)
  redis_call('ZREM', free, table.remove(freed, i))
  table.remove(freed, i)
end

local function close_permits()
  if remembered then
    redis_call('ZREMRANGEBYSCORE', permits, '-inf', int(now - REMEMBERED))
    keep(permits, remembered + REMEMBERED)
  end
  if until_booked then
    redis_call('ZREMRANGEBYSCORE', booked, '-inf', int(now))
    keep(booked, until_booked)
  end
end
