-- Ends calls of online jobs, because their clients or nginx reported the end.
-- KEYS     as in jobs/parts/head
-- ARGV     from 4 on, for each call: job, fence, 1 if it failed
-- RETURNS  now
--          then for each call: 1 if it was ended; 0 if it does not exist; -2 if that is unknown,
--          because the queue was lost and is not rebuilt yet
-- @include "jobs/parts/breaker"
local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  local replies, dropped = {now}, {}
  for i = 4, #ARGV, 3 do
    local job = ARGV[i]
    local fence, call_state, began, is_trial = read_fact(redis_call('HGET', FACTS, job))
    local is_current = fence and fence == tonumber(ARGV[i + 1]) and call_state ~= 'r'
      and not dropped[job]
    if is_current then
      dropped[job] = true
      dropped[#dropped + 1] = job
      count(ARGV[i + 2] == '1' and 'failed' or 'completed')
      record_duration(math.max(0, now - began))
      -- The report does not tell how the target behaved, but every trial must end.
      if is_trial then close_breaker() end
    end
    replies[#replies + 1] = is_current and 1 or (target.ready and 0 or -2)
  end
  remove_calls(dropped)
  forget_jobs(dropped)
  finish_state()
  if #dropped > 0 then wake_workers_if_jobs_wait() end
  return replies
end
