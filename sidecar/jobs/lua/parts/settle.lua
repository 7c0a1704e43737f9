-- @include "jobs/parts/state"
-- Ends calls whose lock, permit or term has expired, and queues jobs whose retry is due: at most
-- LOOP_LIMIT of each in one call of the script.

local function return_to_queue(jobs)
  if #jobs == 0 then return end
  local adds = {}
  for n, order in ipairs(redis_call('HMGET', ORDERS, unpack(jobs))) do
    adds[2 * n - 1], adds[2 * n] = order or int(now), jobs[n]
  end
  redis_call('ZADD', LINE, unpack(adds))
  redis_call('HDEL', ORDERS, unpack(jobs))
end

local function end_expired_calls()
  local jobs, ended_at = queue.members_until(now, ACTIVE, LOOP_LIMIT)
  if #jobs == 0 then return end
  local lost, ended, online_jobs = {}, {}, {}
  for n, text in ipairs(redis_call('HMGET', FACTS, unpack(jobs))) do
    local _, call_state = read_fact(text)
    if call_state == 'c' or call_state == 'u' then
      online_jobs[#online_jobs + 1] = jobs[n]
      ended[#ended + 1] = ended_at[n]
      ended[#ended + 1] = jobs[n] .. (call_state == 'c' and '~unused' or '~term')
      count(call_state == 'c' and 'expired' or 'completed')
    else
      lost[#lost + 1] = jobs[n]
      count('lost')
    end
  end
  remove_calls(jobs)
  return_to_queue(lost)
  queue.write_all('ZADD', ENDED, ended)
  forget_jobs(online_jobs)
end

local function queue_due_retries()
  local jobs = queue.members_until(now, LATER, LOOP_LIMIT)
  queue.write_all('ZREM', LATER, jobs)
  return_to_queue(jobs)
end

local function settle_due_jobs()
  end_expired_calls()
  queue_due_retries()
end
