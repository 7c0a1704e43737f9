-- Extends the locks of workers.
-- KEYS     as in jobs/parts/head
-- ARGV     4 how long the locks last from now, µs; then for each lock: job, fence
-- RETURNS  now
--          then for each lock: 1 if the worker has it; 2 if the worker must abort the call; 0 if
--          the lock is lost. A lock that is missing because the queue was lost counts as the
--          worker's (1), because no job is called until the queue is rebuilt
-- @include "jobs/parts/state"
local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  local jobs, replies, ends = {}, {now}, int(now + tonumber(ARGV[4]))
  for i = 5, #ARGV, 2 do jobs[#jobs + 1] = ARGV[i] end
  local facts = redis_call('HMGET', FACTS, unpack(jobs))
  local aborts = redis_call('SMISMEMBER', ABORTS, unpack(jobs))
  local extended = {}
  for n, job in ipairs(jobs) do
    local fence, call_state = read_fact(facts[n])
    if fence == tonumber(ARGV[2 * n + 4]) and call_state == 'r' then
      extended[#extended + 1], extended[#extended + 2] = ends, job
      replies[#replies + 1] = 1 + aborts[n]
    else
      replies[#replies + 1] = (fence or target.ready) and 0 or 1
    end
  end
  if #extended > 0 then
    begin_with_removal()
    redis_call('ZADD', ACTIVE, unpack(extended))
  end
  return replies
end
