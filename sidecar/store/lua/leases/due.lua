-- At which resources something is due, the longest overdue first. Changes nothing.
-- ARGV    5 how many at most
-- RETURNS {now, their names}
-- @include "leases/parts/template"
return {now, redis_call('ZRANGEBYSCORE', ENDS, '-inf', int(now), 'LIMIT', 0, tonumber(ARGV[5]))}
