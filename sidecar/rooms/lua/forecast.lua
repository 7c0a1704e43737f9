-- Estimates how fast the queue moves now, and how fast it would move with other settings. Changes
-- nothing.
-- ARGV    from 6 on, for each of the other settings: name, value as JSON
-- RETURNS {now, number of waiting visitors, number of sessions, then the four numbers of forecast()
--         with the current settings, then the same four numbers with the other settings}
-- @include "rooms/parts/room"
-- @include "rooms/parts/estimate_wait"
local MINUTE_MS = 60000

local function whole_or_unknown(ms)
  return ms and ms < 2 ^ 53 and math.floor(ms) or -1
end

-- Returns four numbers for the settings in `room`:
--   the cap
--   how many of the waiting visitors will be called within a minute
--   the time until the first waiting visitor is called, ms (-1: unknown or never)
--   the time until the last waiting visitor is called, ms (-1: unknown or never)
local function forecast()
  local waiting, first = size(WAITING), stage < 2 and estimate_wait(0) or nil
  if not first or waiting == 0 then return cap, 0, whole_or_unknown(first), -1 end
  local low, high = 0, waiting
  while low < high do
    local middle = math.ceil((low + high) / 2)
    if estimate_wait(middle - 1) <= MINUTE_MS then low = middle else high = middle - 1 end
  end
  return cap, low, whole_or_unknown(first), whole_or_unknown(estimate_wait(waiting - 1))
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  local reply = {now, size(WAITING), size(ACTIVE), forecast()}
  local overrides = redis_call('HGETALL', CONFIG)
  for i = 6, #ARGV do overrides[#overrides + 1] = ARGV[i] end
  room = decode_settings(ARGV[2], overrides)
  session_ms, timeout_ms = room.session_ms, room.timeout_ms
  begin_events()
  cache = {}
  for _, number in ipairs({forecast()}) do reply[#reply + 1] = number end
  return reply
end
