-- @include "jobs/parts/state"
-- Handles what time has brought: locks, permits and terms that ended, and jobs whose retry is due.
local is_more -- than one call handles

local function return_to_queue(jobs)
  if #jobs == 0 then return end
  local adds = {}
  for n, order in ipairs(redis_call('HMGET', ORDERS, unpack(jobs))) do
    adds[2 * n - 1], adds[2 * n] = order or int(now), jobs[n]
  end
  redis_call('ZADD', LINE, unpack(adds))
  redis_call('HDEL', ORDERS, unpack(jobs))
end

local function end_active()
  local jobs, moments = queue.over_by(now, ACTIVE, BOUND)
  if #jobs == 0 then return end
  local lost, ended, gone = {}, {}, {}
  for n, text in ipairs(redis_call('HMGET', FACTS, unpack(jobs))) do
    local _, word = read_fact(text)
    if word == 'c' or word == 'u' then
      gone[#gone + 1] = jobs[n]
      ended[#ended + 1] = moments[n]
      ended[#ended + 1] = jobs[n] .. (word == 'c' and '~unused' or '~term')
      count(word == 'c' and 'expired' or 'completed')
    else
      lost[#lost + 1] = jobs[n]
      count('lost')
    end
  end
  drop(jobs)
  return_to_queue(lost)
  queue.write_all('ZADD', ENDED, ended)
  forget(gone)
  is_more = is_more or #jobs == BOUND
end

local function end_waits()
  local jobs = queue.over_by(now, LATER, BOUND)
  queue.write_all('ZREM', LATER, jobs)
  return_to_queue(jobs)
  is_more = is_more or #jobs == BOUND
end

local function settle()
  is_more = false
  end_active()
  end_waits()
end
