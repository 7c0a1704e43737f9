-- @include "jobs/parts/breaker"
-- @include "jobs/parts/rate"
-- Describes the target's queue and its jobs, in the replies of `look` and `add`.
local COUNTERS = {'called', 'completed', 'failed', 'retried', 'lost', 'expired'}
local STATE_NAMES = {r = 'running', c = 'called', u = 'used'}

-- Returns a list:
--   now
--   the numbers of jobs in `line`, `later`, `active` and `reserved`
--   the moving average of the durations of answered calls, µs (-1: not measured yet)
--   the number of calls that count against the rate
--   the breaker's state
--   the time until which the breaker is open, µs
--   the time until which a Retry-After holds the target, µs
--   1 if the target is ready
--   when a worker last asked for jobs, µs (0: never)
--   the counters in the order of COUNTERS
local function describe_queue()
  local replies = {
    now, redis_call('ZCARD', LINE), redis_call('ZCARD', LATER), redis_call('ZCARD', ACTIVE),
    redis_call('ZCOUNT', RESERVED, '(' .. int(now), '+inf'), math.floor(target.mean_us or -1),
    count_calls_in_use(), read_breaker_state(), target.open_until or 0, target.held_until or 0,
    target.ready and 1 or 0, target.runner or 0,
  }
  for _, name in ipairs(COUNTERS) do replies[#replies + 1] = target[name] or 0 end
  return replies
end

-- Appends to `replies`, for each job: its state, its position in the queue (0: not queued), its
-- fence (0: none), and when the state ends, µs (0: it has no end).
local function describe_jobs(jobs, replies)
  if #jobs == 0 then return end
  local later_until, active_until = queue.scores_of(LATER, jobs), queue.scores_of(ACTIVE, jobs)
  local facts = redis_call('HMGET', FACTS, unpack(jobs))
  for n, job in ipairs(jobs) do
    local rank = redis_call('ZRANK', LINE, job)
    local fence, call_state = read_fact(facts[n])
    local job_state, ends = 'gone', 0
    if rank then
      job_state = 'line'
    elseif later_until[n] then
      job_state, ends = 'later', tonumber(later_until[n])
    elseif call_state and active_until[n] then
      job_state, ends = STATE_NAMES[call_state], tonumber(active_until[n])
    end
    local i = #replies
    replies[i + 1], replies[i + 2], replies[i + 3] = job_state, rank and rank + 1 or 0, fence or 0
    replies[i + 4] = ends
  end
end
