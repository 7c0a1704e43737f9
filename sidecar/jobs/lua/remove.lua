-- Removes a job that waits, is being submitted, or has not used its permit. A running job stays.
-- KEYS     as in jobs/parts/head
-- ARGV     4 the job
-- RETURNS  now; 1 if the job was removed, else 0
-- @include "jobs/parts/head"
local function run(KEYS, ARGV)
  begin_target(KEYS, ARGV)
  local job = ARGV[4]
  local _, call_state = read_fact(redis_call('HGET', FACTS, job))
  if call_state == 'r' or call_state == 'u' then return {now, 0} end
  local removed = redis_call('ZREM', LINE, job) + redis_call('ZREM', LATER, job)
  removed = removed + redis_call('ZREM', RESERVED, job)
  if call_state then remove_calls({job}) end
  if removed > 0 or call_state then forget_jobs({job}) end
  if call_state then wake_workers_if_jobs_wait() end
  return {now, (removed > 0 or call_state) and 1 or 0}
end
