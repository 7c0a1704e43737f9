-- @include "jobs/parts/state"
-- What happened by itself since a script looked: locks, permits and terms that ended, and jobs that
-- have waited long enough.
local is_more -- than one script does

local function return_to_line(jobs)
  if #jobs == 0 then return end
  local adds = {}
  for n, order in ipairs(redis_call('HMGET', ORDERS, unpack(jobs))) do
    adds[2 * n - 1], adds[2 * n] = order or int(now), jobs[n]
  end
  redis_call('ZADD', LINE, unpack(adds))
  redis_call('HDEL', ORDERS, unpack(jobs))
end

local function end_active()
  local rows = redis_call('ZRANGEBYSCORE', ACTIVE, '-inf', int(now), 'WITHSCORES',
    'LIMIT', 0, BOUND)
  if #rows == 0 then return end
  local jobs, lost, ended, gone = {}, {}, {}, {}
  for i = 1, #rows, 2 do jobs[#jobs + 1] = rows[i] end
  for n, text in ipairs(redis_call('HMGET', FACTS, unpack(jobs))) do
    local _, word = read_fact(text)
    if word == 'c' or word == 'u' then
      gone[#gone + 1] = jobs[n]
      ended[#ended + 1] = rows[2 * n]
      ended[#ended + 1] = jobs[n] .. (word == 'c' and '~unused' or '~term')
      count(word == 'c' and 'expired' or 'completed')
    else
      lost[#lost + 1] = jobs[n]
      count('lost')
    end
  end
  drop(jobs)
  return_to_line(lost)
  write_all('ZADD', ENDED, ended)
  forget(gone)
  is_more = is_more or #jobs == BOUND
end

local function end_waits()
  local jobs = redis_call('ZRANGEBYSCORE', LATER, '-inf', int(now), 'LIMIT', 0, BOUND)
  write_all('ZREM', LATER, jobs)
  return_to_line(jobs)
  is_more = is_more or #jobs == BOUND
end

-- When the next of either is due.
local function first_of(key)
  return tonumber(redis_call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or math.huge)
end

local function settle()
  is_more = false
  end_active()
  end_waits()
end
