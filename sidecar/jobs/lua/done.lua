-- Ends calls of online jobs, as their clients report.
-- KEYS     jobs/parts/head
-- ARGV     from 4 on, for each: job, fence, 1 if it failed
-- RETURNS  now; then for each 1; 0: no such call; -2: unknown, since the queue was lost and is not
--          rebuilt
-- @include "jobs/parts/breaker"
local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  local replies, dropped = {now}, {}
  for i = 4, #ARGV, 3 do
    local job = ARGV[i]
    local fence, word, began, is_trial = read_fact(redis_call('HGET', FACTS, job))
    local is_its = fence and fence == tonumber(ARGV[i + 1]) and word ~= 'r' and not dropped[job]
    if is_its then
      dropped[job] = true
      dropped[#dropped + 1] = job
      count(ARGV[i + 2] == '1' and 'failed' or 'completed')
      measure(math.max(0, now - began))
      -- How the client's call went is unknown; but a trial must end some time.
      if is_trial then close_breaker() end
    end
    replies[#replies + 1] = is_its and 1 or (target.ready and 0 or -2)
  end
  drop(dropped)
  forget(dropped)
  finish_state()
  if #dropped > 0 then wake_if_waiting() end
  return replies
end
