-- @include "visitors/members"
-- Begins every lease script: reads the arguments and the template's settings.
-- KEYS  1 state  2 resources  3 ends; then for each resource: holders, facts, line, due
--       (names and types: leases/redis_keys.py)
-- ARGV  1 now in ms, or '' for Redis' own time (tests override it)
--       2 the template's settings (leases/settings.py) except those that are None, JSON
--       3 the earliest time at which the replica knows that the template existed, ms, or ''
--       4 the highest fencing number or order that the replica has seen, or ''
--       from 5 on, for each resource: its name
local STATE, RESOURCES, ENDS

-- How many members of a set one loop of a script handles. The next script handles the rest.
local MAX_LOOP_MEMBERS = 150

local now, now_us
-- The cache of parsed settings, by their JSON text, and their number.
local parsed_settings, parsed_count = {}, 0
local MAX_PARSED = 500
-- The settings that are durations, in seconds.
local DURATIONS = {'term', 'max_term', 'claim_window', 'heartbeat_timeout', 'heartbeat_interval'}
local template, capacity, term_ms, claim_ms, timeout_ms
-- The index in ARGV of the last resource's name. The script's own arguments follow.
local last_name_index

-- Returns the settings in a JSON text, with each duration also in ms, such as `term_ms`.
local function parse_settings(text)
  if not parsed_settings[text] then
    if parsed_count >= MAX_PARSED then
      parsed_settings, parsed_count = {}, 0
    end
    local settings = cjson.decode(text)
    for _, name in ipairs(DURATIONS) do
      if settings[name] then settings[name .. '_ms'] = math.floor(settings[name] * 1000 + 0.5) end
    end
    parsed_settings[text], parsed_count = settings, parsed_count + 1
  end
  return parsed_settings[text]
end

local function read_template(KEYS, ARGV)
  redis_call = redis.call
  STATE, RESOURCES, ENDS = KEYS[1], KEYS[2], KEYS[3]
  now_us = ARGV[1] == '' and queue.time_us() or tonumber(ARGV[1]) * 1000
  now = math.floor(now_us / 1000)
  template = parse_settings(ARGV[2])
  capacity, term_ms = template.capacity, template.term_ms
  claim_ms, timeout_ms = template.claim_window_ms, template.heartbeat_timeout_ms
  last_name_index = 4 + (#KEYS - 3) / 4
end
