-- What every room script starts with. What a call knows is in locals out here, which begin() sets
-- anew for each: as a library of Redis Functions all of this is loaded once and called often, and
-- nothing may be left of one call to the next, which may be of another room.
-- KEYS  1 waiting  2 due  3 active  4 admitted  5 revoked  6 spent  7 addresses
--       8 replicas  9 polls  10 config  11 stats  12 events  13 log  14 minutes
--       15 arrivals  16 drawn  17 grants  18 moved
--       (names and types: store/keys.py)
-- ARGV  1 now in ms, or '' for the store's own time (tests override it)
--       2 the room's settings from the file, JSON; the config hash overrides them
--       3 to 5 what the replica knows, each '' where it knows nothing: near, known_since,
--         promised_since (shared/recovery.lua)
local WAITING, DUE, ACTIVE, ADMITTED, REVOKED, SPENT, ADDRESSES, REPLICAS, POLLS
local CONFIG, STATS, EVENTS, LOG, MINUTES, ARRIVALS, DRAWN, GRANTS, MOVED

-- Not to be had while a library is loaded: taken by the first call.
local redis_call
-- The most members that one loop of a script touches; what is left is the next script's.
local BOUND = 150

-- tostring() would round a number of more than 14 digits. An argument of redis.call needs it not.
local function int(number)
  return string.format('%.0f', number)
end

-- Every `step`th argument from the sixth on: the visitors of a batch.
local function batch(ARGV, step)
  local visitors = {}
  for i = 6, #ARGV, step do
    visitors[#visitors + 1] = ARGV[i]
  end
  return visitors
end

local now
-- What a script found out, forgotten with the next.
local found

-- @include "shared/settings"
-- @include "shared/events"
-- @include "shared/later"
-- @include "shared/stats"
-- @include "shared/outage"
-- @include "shared/recovery"
local function begin(KEYS, ARGV)
  redis_call = redis.call
  WAITING, DUE, ACTIVE, ADMITTED, REVOKED = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
  SPENT, ADDRESSES, REPLICAS, POLLS = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
  CONFIG, STATS, EVENTS = KEYS[10], KEYS[11], KEYS[12]
  LOG, MINUTES = KEYS[13], KEYS[14]
  ARRIVALS, DRAWN, GRANTS, MOVED = KEYS[15], KEYS[16], KEYS[17], KEYS[18]
  if ARGV[1] == '' then
    local time = redis_call('TIME')
    now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  else
    now = tonumber(ARGV[1])
  end
  found, pending, sizes = {}, {}, {}
  begin_settings(ARGV[2])
  begin_events()
  begin_stats()
  begin_outage()
  begin_recovery(tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]))
end
