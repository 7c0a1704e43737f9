-- @include "limits/parts/subject"
-- The times that calls were given, by permit, and the times that were released.
local permits, booked -- the keys, if the limit needs them
local REMEMBERED -- how long an id is remembered, µs
local released, latest_permit, latest_booked

local function open_permits()
  released, latest_permit, latest_booked = nil, nil, nil
end

-- Returns whether the replica has made this id, because the caller sent none: it begins with ~.
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

local function close_permits()
  if latest_permit then
    redis_call('ZREMRANGEBYSCORE', permits, '-inf', int(now - REMEMBERED))
    keep(permits, latest_permit + REMEMBERED)
  end
  if latest_booked then
    redis_call('ZREMRANGEBYSCORE', booked, '-inf', int(now))
    keep(booked, latest_booked)
  end
end
