-- Asks the worker of a job to abort the call. The worker gets a wake-up, and reads the request when
-- it renews its lock.
-- KEYS     as in jobs/parts/head
-- ARGV     4 the job
-- RETURNS  now; 1 if a worker has the job, else 0
-- @include "jobs/parts/head"
local function run(KEYS, ARGV)
  begin_target(KEYS, ARGV)
  local _, call_state = read_fact(redis_call('HGET', FACTS, ARGV[4]))
  if call_state ~= 'r' then return {now, 0} end
  begin_with_removal()
  redis_call('SADD', ABORTS, ARGV[4])
  publish('abort ' .. target_name)
  return {now, 1}
end
