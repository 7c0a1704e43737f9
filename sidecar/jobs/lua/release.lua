-- Ends the calls of workers, except calls whose lock another worker has by now.
-- KEYS     as in jobs/parts/head
-- ARGV     4 1 to wake the other workers, because this worker will not claim again
--          then for each call:
--          job
--          fence
--          outcome, as in CallOutcome (jobs/model.py)
--          duration, µs
--          when to retry, µs, or ''
--          the time until which the target is held, µs, or ''
--          the setting break_after
-- RETURNS  now; then for each call: 1 if it was ended, 0 if another worker has the lock
-- @include "jobs/parts/breaker"
local WIDTH, AFTER_TRIAL_US = 7, 1000000

-- Counts a call by its outcome. Returns true if that closed the breaker, so that other workers must
-- be woken.
local function record_outcome(outcome, took_us, is_trial, break_after)
  if outcome == 'answered' or outcome == 'rejected' then
    count(outcome == 'answered' and 'completed' or 'failed')
    record_duration(took_us)
    return close_breaker()
  elseif outcome == 'failed' then
    count('failed')
    record_failure(is_trial, break_after)
  end
  return false
end

local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  local jobs, replies, must_wake = {}, {now}, ARGV[4] == '1'
  for i = 5, #ARGV, WIDTH do jobs[#jobs + 1] = ARGV[i] end
  local facts = redis_call('HMGET', FACTS, unpack(jobs))
  local dropped, finished, later = {}, {}, {}
  for n, job in ipairs(jobs) do
    local i = WIDTH * (n - 1) + 5
    local claimed_fence, outcome, took_us, retry_at, hold_until, break_after = unpack(
      ARGV, i + 1, i + 6)
    local fence, _, _, is_trial = read_fact(facts[n])
    if fence and fence == tonumber(claimed_fence) and not dropped[job] then
      dropped[job] = true
      dropped[#dropped + 1] = job
      must_wake = record_outcome(outcome, tonumber(took_us), is_trial, tonumber(break_after))
        or must_wake
      if retry_at == '' then
        finished[#finished + 1] = job
      elseif outcome == 'failed' and is_trial then
        -- Retry after the next trial, because this job may be the cause of the failures.
        local earliest = math.max(tonumber(retry_at), (target.open_until or 0) + AFTER_TRIAL_US)
        later[#later + 1], later[#later + 2] = int(earliest), job
        count('retried')
      else
        later[#later + 1], later[#later + 2] = retry_at, job
        count('retried')
      end
      target.held_until = math.max(target.held_until or 0, tonumber(hold_until) or 0)
      replies[#replies + 1] = 1
    else
      replies[#replies + 1] = 0
    end
  end
  remove_calls(dropped)
  forget_jobs(finished)
  queue.write_all('ZADD', LATER, later)
  finish_state()
  if must_wake then wake_workers_if_jobs_wait() end
  return replies
end
