-- What every script of leases starts with.
-- KEYS  1 state  2 resources  3 ends; then for each resource: holders, facts, line, due
--       (names and types: store/keys.py)
-- ARGV  1 now in ms, or '' for the store's own time (tests override it)
--       2 the template's settings, JSON: store/leases.py
--       3 since when the replica knows the template, ms, or ''
--       4 the highest fencing number or order that the replica was told, or ''
--       from 5 on, for each resource: its name
local STATE, RESOURCES, ENDS = KEYS[1], KEYS[2], KEYS[3]

local redis_call = redis.call
-- The most members that one loop of a script touches; what is left is the next script's.
local BOUND = 150

-- tostring() would round a number of more than 14 digits.
local function int(number)
  return string.format('%.0f', number)
end

local now, now_us
if ARGV[1] == '' then
  local time = redis_call('TIME')
  now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
  now = math.floor(now_us / 1000)
else
  now = tonumber(ARGV[1])
  now_us = now * 1000
end

local template = cjson.decode(ARGV[2])
local capacity, term_ms = template.capacity, template.term_ms
local claim_ms, timeout_ms = template.claim_ms, template.timeout_ms

-- Where the names of the resources end; what one script takes beyond the common comes after.
local named = 4 + (#KEYS - 3) / 4
