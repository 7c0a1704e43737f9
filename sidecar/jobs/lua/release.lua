-- Calls that are over, of those whose lock it still is.
-- KEYS     jobs/parts/head
-- ARGV     4 1: the worker does not ask for more, so others are woken
--          then for each: job, fence, how it ended: answered, rejected (it failed by its
--          answer), failed, busy (it said so itself),
--          gone (it was not called), how long it took, µs, when to try again, µs, or '', until when
--          nothing is called, µs, or '', after how many failures in a row nothing is called
-- RETURNS  now; then for each 1, or 0 where it is not this lock's
-- @include "jobs/parts/breaker"
local WORDS, AFTER_TRIAL_US = 7, 1000000

-- Whether others are woken.
local function note(how, took_us, is_trial, break_after)
  if how == 'answered' or how == 'rejected' then
    count(how == 'answered' and 'completed' or 'failed')
    measure(took_us)
    return close_breaker()
  elseif how == 'failed' then
    count('failed')
    failed(is_trial, break_after)
  end
  return false
end

local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  local jobs, replies, wakes = {}, {now}, ARGV[4] == '1'
  for i = 5, #ARGV, WORDS do jobs[#jobs + 1] = ARGV[i] end
  local facts = redis_call('HMGET', FACTS, unpack(jobs))
  local dropped, forgotten, later = {}, {}, {}
  for n, job in ipairs(jobs) do
    local i = WORDS * (n - 1) + 5
    local given, how, took_us, again, hold, break_after = unpack(ARGV, i + 1, i + 6)
    local fence, _, _, is_trial = read_fact(facts[n])
    if fence and fence == tonumber(given) and not dropped[job] then
      dropped[job] = true
      dropped[#dropped + 1] = job
      wakes = note(how, tonumber(took_us), is_trial, tonumber(break_after)) or wakes
      if again == '' then
        forgotten[#forgotten + 1] = job
      elseif how == 'failed' and is_trial then
        -- The next trial is another's: it may be the job.
        local after = math.max(tonumber(again), (target.open_until or 0) + AFTER_TRIAL_US)
        later[#later + 1], later[#later + 2] = int(after), job
        count('retried')
      else
        later[#later + 1], later[#later + 2] = again, job
        count('retried')
      end
      target.held_until = math.max(target.held_until or 0, tonumber(hold) or 0)
      replies[#replies + 1] = 1
    else
      replies[#replies + 1] = 0
    end
  end
  drop(dropped)
  forget(forgotten)
  queue.write_all('ZADD', LATER, later)
  finish_state()
  if wakes then wake_if_waiting() end
  return replies
end
