-- The target is built again: calls are made from some moment on. One that is ready stays so.
-- KEYS     jobs/parts/head
-- ARGV     4 until then, µs  5 when it was found lost, or ''
-- RETURNS  now, 1; or 0 where it was lost again since
-- @include "jobs/parts/head"
local function run(KEYS, ARGV)
  begin_target(KEYS, ARGV)
  if ARGV[5] ~= '' and redis_call('HGET', STATE, 'born') ~= ARGV[5] then return {now, 0} end
  redis_call('HSETNX', STATE, 'ready', int(now + tonumber(ARGV[4])))
  publish(target_name)
  return {now, 1}
end
