-- A room as it is now; also how replicas learn of changed settings and revoked passes.
-- ARGV    3 revocations from this time on, ms
--         4 how many revocations at most
-- RETURNS {now, waiting, active, provisional, epoch, revision, wait of a newcomer or -1,
--          config hash as a flat list, stats hash as a flat list, {visitor, revoked at, …}}
-- EVENTS  called, expired
-- @include "shared/room"
-- @include "shared/expire"
-- @include "shared/call"
-- @include "shared/wait"
measure_start()
expire()
call_next()
finish()
local waiting, active = redis_call('ZCARD', WAITING), redis_call('ZCARD', ACTIVE)
return {now, waiting, active, active - redis_call('ZCARD', ADMITTED), epoch, revision,
  math.floor(wait_ms(waiting) or -1), redis_call('HGETALL', CONFIG),
  redis_call('HGETALL', STATS), redis_call('ZRANGEBYSCORE', REVOKED, ARGV[3], '+inf',
    'WITHSCORES', 'LIMIT', 0, tonumber(ARGV[4]))}
