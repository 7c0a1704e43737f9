-- Changes settings; the caller has checked them. A raised cap calls at once.
-- ARGV    3 the operator who says so, or ''
--         4 the changes as one JSON object, for the history
--         from 5 on, for each setting: name, value as JSON or '' to go back to the file's
-- RETURNS {now, revision}
-- EVENTS  called, expired, operator
for i = 5, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[10], ARGV[i])
  else
    redis.call('HSET', KEYS[10], ARGV[i], ARGV[i + 1])
  end
end
redis.call('HINCRBY', KEYS[10], 'revision', 1)
-- @include "shared/room"
-- @include "shared/expire"
-- @include "shared/call"
measure_start()
note(ARGV[3], 'change', '', ARGV[4])
expire()
call_next()
check_arrivals()
finish()
return {now, revision}
