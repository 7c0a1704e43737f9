-- Stores what the room has learned of its site, with the ceiling. If this raises the cap, visitors
-- are called at once.
-- ARGV    6 what must be stored now, as JSON, or ''
--         7 what to store, as JSON, or '' to forget it
-- RETURNS {now, 1}; or, if something else is stored, because another replica was faster, {now, 0}
-- EVENTS  called, expired
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"

local function run(KEYS, ARGV)
  begin(KEYS, ARGV) -- detects lost keys, which the write below might create again
  if (redis.call('HGET', KEYS[8], 'learned') or '') ~= ARGV[6] then return {now, 0} end
  if ARGV[7] == '' then
    redis.call('HDEL', KEYS[8], 'learned')
  else
    redis.call('HSET', KEYS[8], 'learned', ARGV[7])
  end
  begin(KEYS, ARGV)
  measure_elapsed()
  expire()
  call_next()
  finish()
  return {now, 1}
end
