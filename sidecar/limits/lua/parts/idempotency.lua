-- @include "limits/parts/algorithm_state"
-- Remembers the time that each call was given, so that a call with the same id gets it again.
local permits, booked -- the Redis keys (limits/redis_keys.py), or a false value if not needed
local MEMORY_US -- how long an id is remembered, µs
local latest_permit, latest_booked -- the latest times that this script has stored in each key

local function reset_permits()
  latest_permit, latest_booked = nil, nil
end

-- Returns whether the replica generated this id, because the client sent none. Such an id begins
-- with ~.
local function is_generated(id)
  return string.byte(id) == 126
end

-- Returns the time of an earlier call with this id, or a false value.
local function find_stored_time(permit, id)
  if not permits or id == '' or is_generated(id) then return nil end
  local at = tonumber(redis_call('ZSCORE', permits, permit) or nil)
  return at and at > now - MEMORY_US and at
end

-- Stores the time of a call.
local function store_time(permit, id, at)
  if not permits or id == '' then return end
  if not is_generated(id) then
    redis_call('ZADD', permits, int(at), permit)
    latest_permit = math.max(latest_permit or 0, at)
  elseif at > now then
    redis_call('ZADD', booked, int(at), permit)
    latest_booked = math.max(latest_booked or 0, at)
  end
end

-- Removes old times from the keys that this script has written, and extends the keys' expiry.
local function clean_up_permits()
  if latest_permit then
    redis_call('ZREMRANGEBYSCORE', permits, '-inf', int(now - MEMORY_US))
    extend_expiry(permits, latest_permit + MEMORY_US)
  end
  if latest_booked then
    redis_call('ZREMRANGEBYSCORE', booked, '-inf', int(now))
    extend_expiry(booked, latest_booked)
  end
end
