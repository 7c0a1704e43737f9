-- @include "visitors/members"
-- The start of every script of leases.
-- KEYS  1 state  2 resources  3 ends; then for each resource: holders, facts, line, due
--       (names and types: leases/redis_keys.py)
-- ARGV  1 now in ms, or '' for Redis' own time (tests override it)
--       2 the template's settings, JSON: leases/store.py
--       3 since when the replica knows that the template exists, ms, or ''
--       4 the highest fencing number or order that the replica has seen, or ''
--       from 5 on, for each resource: its name
local STATE, RESOURCES, ENDS

-- The most members that one loop of a script handles; the next script handles the rest.
local BOUND = 150

local now, now_us
-- How many parsed settings to cache, by their JSON text.
local MAX_DECODED = 500
local decoded, decoded_number = {}, 0
local template, capacity, term_ms, claim_ms, timeout_ms
-- The index in ARGV of the last resource's name. A script's own arguments follow.
local last_name_at

local function decode(text)
  if not decoded[text] then
    if decoded_number >= MAX_DECODED then
      decoded, decoded_number = {}, 0
    end
    decoded[text], decoded_number = cjson.decode(text), decoded_number + 1
  end
  return decoded[text]
end

local function begin_template(KEYS, ARGV)
  redis_call = redis.call
  STATE, RESOURCES, ENDS = KEYS[1], KEYS[2], KEYS[3]
  now_us = ARGV[1] == '' and queue.time_us() or tonumber(ARGV[1]) * 1000
  now = math.floor(now_us / 1000)
  template = decode(ARGV[2])
  capacity, term_ms = template.capacity, template.term_ms
  claim_ms, timeout_ms = template.claim_ms, template.timeout_ms
  last_name_at = 4 + (#KEYS - 3) / 4
end
