-- Lists the resources that a sweep must update, the most overdue first. Changes nothing.
-- ARGV    5 how many resources to list at most
-- RETURNS {now, {the names of the resources}}
-- @include "leases/parts/template"
local function run(KEYS, ARGV)
  read_template(KEYS, ARGV)
  local due = redis_call('ZRANGEBYSCORE', ENDS, '-inf', int(now), 'LIMIT', 0, tonumber(ARGV[5]))
  return {now, due}
end
