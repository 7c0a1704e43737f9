-- Changes settings; the caller has checked them. A raised cap calls at once.
-- ARGV    from 3 on, for each setting: name, value as JSON or '' to go back to the file's
-- RETURNS {now, revision}
-- EVENTS  called, expired
for i = 3, #ARGV, 2 do
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
expire()
call_next()
finish()
return {now, revision}
