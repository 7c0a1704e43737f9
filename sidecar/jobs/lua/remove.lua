-- Removes a job that waits, is being submitted, or has not used its permit; not one that runs.
-- KEYS     jobs/parts/head
-- ARGV     4 the job
-- RETURNS  now, 1 if it was there
-- @include "jobs/parts/head"
local function run(KEYS, ARGV)
  begin_target(KEYS, ARGV)
  local job = ARGV[4]
  local _, word = read_fact(redis_call('HGET', FACTS, job))
  if word == 'r' or word == 'u' then return {now, 0} end
  local removed = redis_call('ZREM', LINE, job) + redis_call('ZREM', LATER, job)
  removed = removed + redis_call('ZREM', RESERVED, job)
  if word then drop({job}) end
  if removed > 0 or word then forget({job}) end
  if word then wake_if_waiting() end
  return {now, (removed > 0 or word) and 1 or 0}
end
