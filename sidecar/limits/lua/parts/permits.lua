-- @include "limits/parts/algorithm_state"
-- The times that calls were given, by permit.
local permits, booked -- the keys, if the limit needs them
local REMEMBERED -- how long an id is remembered, µs
local latest_permit, latest_booked -- the latest times that this script has stored in each key

local function reset_permits()
  latest_permit, latest_booked = nil, nil
end

-- Returns whether the replica has made this id, which then begins with ~, as the caller sent none.
local function is_made_by_replica(id)
  return string.byte(id) == 126
end

-- Returns the time that an earlier call with this id was given, or a false value.
local function find_given_time(permit, id)
  if not permits or id == '' or is_made_by_replica(id) then return nil end
  local at = tonumber(redis_call('ZSCORE', permits, permit) or nil)
  return at and at > now - REMEMBERED and at
end

-- Stores the time that a call was given.
local function store_given_time(permit, id, at)
  if not permits or id == '' then return end
  if not is_made_by_replica(id) then
    redis_call('ZADD', permits, int(at), permit)
    latest_permit = math.max(latest_permit or 0, at)
  elseif at > now then
    redis_call('ZADD', booked, int(at), permit)
    latest_booked = math.max(latest_booked or 0, at)
  end
end

-- Removes old times and extends the expiry of the keys that this script has written.
local function expire_permits()
  if latest_permit then
    redis_call('ZREMRANGEBYSCORE', permits, '-inf', int(now - REMEMBERED))
    extend_expiry(permits, latest_permit + REMEMBERED)
  end
  if latest_booked then
    redis_call('ZREMRANGEBYSCORE', booked, '-inf', int(now))
    extend_expiry(booked, latest_booked)
  end
end
