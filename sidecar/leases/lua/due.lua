-- Lists the resources where something is due, the longest overdue first. Changes nothing.
-- ARGV    5 the most to list
-- RETURNS {now, the names of the resources}
-- @include "leases/parts/template"
local function run(KEYS, ARGV)
  begin_template(KEYS, ARGV)
  local due = redis_call('ZRANGEBYSCORE', ENDS, '-inf', int(now), 'LIMIT', 0, tonumber(ARGV[5]))
  return {now, due}
end
