-- What every room script starts with. What a call knows is in locals out here, which begin() sets
-- anew for each: as a library of Redis Functions all of this is loaded once and called often, and
-- nothing may be left of one call to the next, which may be of another room.
-- KEYS  1 waiting  2 due  3 active  4 admitted  5 revoked  6 spent  7 polls  8 config  9 stats
--       10 events  11 arrivals  12 drawn; enter has also 13 addresses  14 grants, and all but
--       enter, beat and renew 15 moved  16 replicas  17 log  18 minutes
--       (names and types: rooms/redis_keys.py)
-- ARGV  1 now in ms, or '' for the store's own time (tests override it)
--       2 the room's settings from the file, JSON; the config hash overrides them
--       3 to 5 what the replica knows, each '' where it knows nothing: near, known_since,
--         promised_since (queue/lua/recovery.lua)
local WAITING, DUE, ACTIVE, ADMITTED, REVOKED, SPENT, ADDRESSES, REPLICAS, POLLS
local CONFIG, STATS, EVENTS, LOG, MINUTES, ARRIVALS, DRAWN, GRANTS, MOVED

-- Not to be had while a library is loaded: taken by the first call.
local redis_call
-- The most members that one loop of a script touches; what is left is the next script's.
local BOUND = 150

-- A whole number as text; tostring() would round one of more than 14 digits. An argument of
-- redis.call needs it not.
local function int(number)
  return string.format('%d', number)
end

-- Every `step`th argument from the sixth on: the visitors of a batch.
local function batch(ARGV, step)
  local visitors = {}
  for i = 6, #ARGV, step do
    visitors[#visitors + 1] = ARGV[i]
  end
  return visitors
end

-- Their scores as text, false where there is none.
local function scores_of(key, members)
  if #members == 1 then return {redis_call('ZSCORE', key, members[1])} end
  return redis_call('ZMSCORE', key, unpack(members))
end

local now
-- What a script found out, forgotten with the next.
local found

-- @include "rooms/parts/settings"
-- @include "rooms/parts/openings"
-- @include "queue/pending_writes"
-- @include "rooms/parts/stats"
-- @include "queue/outage"
-- @include "queue/recovery"
local function begin(KEYS, ARGV)
  redis_call = redis.call
  WAITING, DUE, ACTIVE, ADMITTED, REVOKED, SPENT, POLLS, CONFIG, STATS, EVENTS, ARRIVALS, DRAWN,
    ADDRESSES, GRANTS, MOVED, REPLICAS, LOG, MINUTES = unpack(KEYS)
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
