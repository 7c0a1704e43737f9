-- What every room script starts with.
-- KEYS  1 waiting  2 due  3 active  4 admitted  5 revoked  6 spent  7 addresses
--       8 replicas  9 polls  10 config  11 stats  12 events  13 log  14 minutes
--       15 arrivals  16 drawn  17 grants  18 moved
--       (names and types: store/keys.py)
-- ARGV  1 now in ms, or '' for the store's own time (tests override it)
--       2 the room's settings from the file, JSON; the config hash overrides them. With
--         them what the replica knows: shared/recovery.lua
local WAITING, DUE, ACTIVE, ADMITTED, REVOKED = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local SPENT, ADDRESSES, REPLICAS, POLLS = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local CONFIG, STATS, EVENTS = KEYS[10], KEYS[11], KEYS[12]
local LOG, MINUTES = KEYS[13], KEYS[14]
local ARRIVALS, DRAWN, GRANTS, MOVED = KEYS[15], KEYS[16], KEYS[17], KEYS[18]

local redis_call = redis.call
-- The most members that one loop of a script touches; what is left is the next script's.
local BOUND = 150

-- tostring() would round a number of more than 14 digits.
local function int(number)
  return string.format('%.0f', number)
end

local now
if ARGV[1] == '' then
  local time = redis_call('TIME')
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
else
  now = tonumber(ARGV[1])
end

local room = cjson.decode(ARGV[2])
local epoch, revision = 0, 0
local overrides = redis_call('HGETALL', CONFIG)
for i = 1, #overrides, 2 do
  local name, value = overrides[i], overrides[i + 1]
  if name == 'epoch' then
    epoch = tonumber(value)
  elseif name == 'revision' then
    revision = tonumber(value)
  else
    value = cjson.decode(value)
    if value == cjson.null then value = nil end
    room[name] = value
  end
end
local function whole_ms(seconds)
  return math.floor(seconds * 1000 + 0.5)
end
local session_ms = whole_ms(room.session_duration)
local claim_ms = whole_ms(room.claim_window)
local timeout_ms = whole_ms(room.heartbeat_timeout)

-- @include "shared/events"
-- @include "shared/later"
-- @include "shared/stats"
-- @include "shared/outage"
-- @include "shared/recovery"
