-- @include "visitors/members"
-- @include "visitors/pending_writes"
-- Begins every room script: reads the arguments, the settings and the numbers in `stats`.
-- KEYS  (names and types: rooms/redis_keys.py)
--       all scripts: 1 waiting  2 due  3 active  4 admitted  5 revoked  6 spent  7 polls  8 config
--       9 stats  10 events  11 arrivals  12 drawn  13 reserved
--       all but renew: 14 addresses
--       all but renew and beat: 15 grants
--       all but renew, beat and enter: 16 moved  17 replicas  18 log  19 minutes  20 look
-- ARGV  1 now in ms, or '' for Redis' own time (tests override it)
--       2 the room's settings from the settings file, JSON; the config hash overrides them
--       3 near  4 known_since  5 promised_since; each '' if the replica does not know it
--         (rooms/lua/parts/recovery.lua)
local WAITING, DUE, ACTIVE, ADMITTED, REVOKED, SPENT, ADDRESSES, REPLICAS, POLLS
local CONFIG, STATS, EVENTS, LOG, MINUTES, ARRIVALS, DRAWN, RESERVED, GRANTS, MOVED, LOOK

-- The maximum number of members that one loop of a script handles. The next script continues.
local LOOP_LIMIT = 150

-- Returns the ids of a batch's visitors: every `step`th argument from ARGV[6] on.
local function read_visitors(ARGV, step)
  local visitors = {}
  for i = 6, #ARGV, step do
    visitors[#visitors + 1] = ARGV[i]
  end
  return visitors
end

local now
-- Values that are cached until the script ends.
local cache

-- @include "rooms/parts/settings"
-- @include "rooms/parts/openings"
-- @include "rooms/parts/stats"
-- @include "rooms/parts/outage"
-- @include "rooms/parts/recovery"
-- Begins a script that changes nothing and needs no numbers of `stats`.
local function begin_reading(KEYS, ARGV)
  redis_call = redis.call
  WAITING, DUE, ACTIVE, ADMITTED, REVOKED, SPENT, POLLS, CONFIG, STATS, EVENTS, ARRIVALS, DRAWN,
    RESERVED, ADDRESSES, GRANTS, MOVED, REPLICAS, LOG, MINUTES, LOOK = unpack(KEYS)
  now = tonumber(ARGV[1]) or math.floor(queue.time_us() / 1000)
  cache = {}
  queue.begin_writes()
  begin_settings(ARGV[2])
  begin_events()
end

local function begin(KEYS, ARGV)
  begin_reading(KEYS, ARGV)
  begin_stats()
  detect_lost_keys()
  begin_outage()
  begin_recovery(tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]))
end
