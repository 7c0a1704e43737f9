-- Stores what the room has learned of its site, including the ceiling, or a hold of a room whose
-- site is ill. If the cap rises, visitors are called at once.
-- ARGV    6 the JSON text that must be stored now ('': none; '*': any)
--         7 the JSON text to store, or '' to delete the stored one
--         8 the new state of the site in words, for the history, or ''
--         9 the operator who deletes what the room has learned, or ''
--         10 the setting that stores the text: 'learned' or 'hold'
-- RETURNS {now, 1 if the text was stored; 0 if the stored text is not the one in ARGV[6]}
-- EVENTS  called, expired, operator, site
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"

local function run(KEYS, ARGV)
  begin(KEYS, ARGV) -- detects lost keys, which the write below might create again
  local field = ARGV[10]
  local stored = redis.call('HGET', KEYS[8], field) or ''
  if ARGV[6] ~= '*' and ARGV[6] ~= stored then return {now, 0} end
  if ARGV[7] == '' then
    redis.call('HDEL', KEYS[8], field)
  else
    redis.call('HSET', KEYS[8], field, ARGV[7])
  end
  begin(KEYS, ARGV)
  measure_elapsed()
  if ARGV[8] ~= '' then append_event('site', '', 'site', 'by', 'waitroom', 'detail', ARGV[8]) end
  log_action(ARGV[9], 'reset-learned', '', '')
  expire()
  call_next()
  finish()
  return {now, 1}
end
