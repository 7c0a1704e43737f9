-- Changes settings; the caller has checked them. A raised cap calls at once.
-- ARGV    6 the operator who says so, or ''
--         7 the changes as one JSON object, for the history
--         8 'change', or 'undo' of one
--         from 9 on, for each setting: the number of its hash in KEYS, its name, its value as
--         JSON or '' to reset it to the configured, and what it must be now: so too, or '*'
-- RETURNS {now, revision, name of a setting that is not what it must be, or '': then nothing was
--          changed}
-- EVENTS  called, expired, operator
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"
-- @include "rooms/parts/position"

-- Longer ones, such as a style sheet, are not kept in the log, and cannot be undone.
local LONGEST = 2000

-- By name: what it was and what it becomes. And the name of one that is not what it must be.
local function find_changes(KEYS, ARGV)
  local changes, length = {}, 0
  for i = 9, #ARGV, 4 do
    local name, value, must = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    local was = redis.call('HGET', KEYS[tonumber(ARGV[i])], name) or ''
    if must ~= '*' and must ~= was then return nil, name end
    changes[name] = {was, value}
    length = length + #was + #value
  end
  return length <= LONGEST and changes or nil, ''
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV) -- before a key is made that may have been lost
  local changes, stale = find_changes(KEYS, ARGV)
  if stale ~= '' then return {now, revision, stale} end
  redis.call('HINCRBY', KEYS[8], 'revision', 1)
  for i = 9, #ARGV, 4 do
    local key, name, value = KEYS[tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 2]
    if value == '' then
      redis.call('HDEL', key, name)
    else
      redis.call('HSET', key, name, value)
    end
  end
  begin(KEYS, ARGV)
  measure_start()
  found.changes = changes
  note(ARGV[6], ARGV[8], '', ARGV[7])
  expire()
  call_next()
  check_arrivals()
  finish()
  return {now, revision, ''}
end
