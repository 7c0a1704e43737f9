-- Changes settings; the caller has checked them. A raised cap calls at once.
-- ARGV    6 the operator who says so, or ''
--         7 the changes as one JSON object, for the history
--         from 8 on, for each setting: the number of its hash in KEYS, its name, its value as
--         JSON or '' to reset it to the configured
-- RETURNS {now, revision}
-- EVENTS  called, expired, operator
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"
-- @include "rooms/parts/position"
local function run(KEYS, ARGV)
  redis.call('HINCRBY', KEYS[8], 'revision', 1)
  for i = 8, #ARGV, 3 do
    local key, name, value = KEYS[tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 2]
    if value == '' then
      redis.call('HDEL', key, name)
    else
      redis.call('HSET', key, name, value)
    end
  end
  begin(KEYS, ARGV)
  measure_start()
  note(ARGV[6], 'change', '', ARGV[7])
  expire()
  call_next()
  check_arrivals()
  finish()
  return {now, revision}
end
