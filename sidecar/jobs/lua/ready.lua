-- Marks a target as ready after its queue was rebuilt. Calls begin after a delay. If the target is
-- ready already, nothing changes.
-- KEYS     as in jobs/parts/head
-- ARGV     4 the delay, µs  5 when the queue was first seen to be lost, µs, or ''
-- RETURNS  now; 1 if the target is ready, 0 if the queue was lost again meanwhile
-- @include "jobs/parts/head"
local function run(KEYS, ARGV)
  begin_target(KEYS, ARGV)
  if ARGV[5] ~= '' and redis_call('HGET', STATE, 'born') ~= ARGV[5] then return {now, 0} end
  redis_call('HSETNX', STATE, 'ready', int(now + tonumber(ARGV[4])))
  publish(target_name)
  return {now, 1}
end
