-- Changes settings, which the caller has validated. If the cap rises, visitors are called at once.
-- ARGV    6 the operator, or ''
--         7 the changes as one JSON object, for the history
--         8 'change', or 'undo' of an earlier change
--         from 9 on, for each setting: the index in KEYS of its hash, its name, its new value as
--         JSON ('': reset to the value of the settings file), and in the same form the value that
--         the setting must have now ('*': any)
-- RETURNS {now, revision, ''}; or, if a setting does not have the value that it must have, {now,
--         revision, the name of that setting}: then nothing is changed
-- EVENTS  called, expired, operator
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"
-- @include "rooms/parts/position"

-- Longer changes, such as a style sheet, are not stored in the log, so they cannot be undone.
local MAX_LOGGED_LENGTH = 8000

-- Returns two values:
--   a table of {old value, new value} by the setting's name; nil if it is too long for the log
--   the name of a setting that does not have the value that it must have; '' if all have it
local function find_changes(KEYS, ARGV)
  local changes, length = {}, 0
  for i = 9, #ARGV, 4 do
    local name, value, expected = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    local old_value = redis.call('HGET', KEYS[tonumber(ARGV[i])], name) or ''
    if expected ~= '*' and expected ~= old_value then return nil, name end
    changes[name] = {old_value, value}
    length = length + #old_value + #value
  end
  return length <= MAX_LOGGED_LENGTH and changes or nil, ''
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV) -- detects lost keys, which the writes below might create again
  local changes, changed_setting = find_changes(KEYS, ARGV)
  if changed_setting ~= '' then return {now, revision, changed_setting} end
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
  measure_elapsed()
  cache.changes = changes
  log_action(ARGV[6], ARGV[8], '', ARGV[7])
  expire()
  call_next()
  check_arrivals()
  finish()
  return {now, revision, ''}
end
