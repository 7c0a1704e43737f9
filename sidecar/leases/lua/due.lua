-- At which resources something is due, the longest overdue first. Changes nothing.
-- ARGV    5 how many at most
-- RETURNS {now, their names}
-- @include "leases/parts/template"
local function run(KEYS, ARGV)
  begin_template(KEYS, ARGV)
  local due = redis_call('ZRANGEBYSCORE', ENDS, '-inf', int(now), 'LIMIT', 0, tonumber(ARGV[5]))
  return {now, due}
end
