-- Ends calls, unless another worker has their lock by now.
-- KEYS     jobs/parts/head
-- ARGV     4 1: wake others, since this worker will not claim again
--          then for each: job, fence, note (answered, rejected: the answer fails the job, failed,
--          busy: the target said so, gone: no call was made), how long it took, µs, when to try
--          again, µs, or '', until when the target is held, µs, or '', break_after
-- RETURNS  now; then for each 1, or 0 where another worker has the lock
-- @include "jobs/parts/breaker"
local WIDTH, AFTER_TRIAL_US = 7, 1000000

-- Returns true if others are to be woken.
local function note_call(note, took_us, is_trial, break_after)
  if note == 'answered' or note == 'rejected' then
    count(note == 'answered' and 'completed' or 'failed')
    measure(took_us)
    return close_breaker()
  elseif note == 'failed' then
    count('failed')
    note_failure(is_trial, break_after)
  end
  return false
end

local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  local jobs, replies, wakes = {}, {now}, ARGV[4] == '1'
  for i = 5, #ARGV, WIDTH do jobs[#jobs + 1] = ARGV[i] end
  local facts = redis_call('HMGET', FACTS, unpack(jobs))
  local dropped, forgotten, later = {}, {}, {}
  for n, job in ipairs(jobs) do
    local i = WIDTH * (n - 1) + 5
    local claimed, note, took_us, again, hold, break_after = unpack(ARGV, i + 1, i + 6)
    local fence, _, _, is_trial = read_fact(facts[n])
    if fence and fence == tonumber(claimed) and not dropped[job] then
      dropped[job] = true
      dropped[#dropped + 1] = job
      wakes = note_call(note, tonumber(took_us), is_trial, tonumber(break_after)) or wakes
      if again == '' then
        forgotten[#forgotten + 1] = job
      elseif note == 'failed' and is_trial then
        -- The next trial is another job: this one may be the cause.
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
