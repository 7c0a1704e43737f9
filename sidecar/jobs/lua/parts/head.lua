-- @include "limits/parts/head"
-- @include "visitors/members"
-- Begins every script of a target, after limits/parts/head.
-- KEYS     1 state  2 line  3 later  4 orders  5 active  6 facts  7 online  8 ended  9 reserved
--          10 aborts  11 minutes (names and types: jobs/redis_keys.py)
-- ARGV     2 the pub/sub channel of the wake-ups  3 the target's name
--          from 4 on the script's own arguments
-- RETURNS  now; then the script's own values
local STATE, LINE, LATER, ORDERS, ACTIVE, FACTS, ONLINE, ENDED, RESERVED, ABORTS, MINUTES
local channel, target_name
-- How many members one loop of a script handles. The next call of the script handles the rest.
local LOOP_LIMIT = 200

local function begin_target(KEYS, ARGV)
  begin(ARGV)
  STATE, LINE, LATER, ORDERS, ACTIVE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
  FACTS, ONLINE, ENDED, RESERVED, ABORTS = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
  MINUTES = KEYS[11]
  channel, target_name = ARGV[2], ARGV[3]
end

-- A full Redis refuses a script whose first write may need memory. Scripts that renew or end calls
-- call this function first, because a removal works in a full Redis, and then later writes do too.
local function begin_with_removal()
  redis_call('ZREM', RESERVED, '')
end

local function publish(message)
  redis_call('PUBLISH', channel, message)
end

local function wake_workers_if_jobs_wait()
  if redis_call('ZCARD', LINE) > 0 then publish(target_name) end
end

-- Parses the fact of an active job. Returns the following values. Without a fact, the fourth value
-- is false and the others are nil.
--   the fence of the job's lock or permit
--   the state of its call (r: a worker makes it, c: the permit is unused, u: the permit is used)
--   when that state began, µs
--   whether the call is a trial
--   the id of the request that used the permit
local function read_fact(text)
  local fence, call_state, began, trial, request = string.match(
    text or '', '^(%d+)~(%l)~(%d+)~(%d)~?(.*)$')
  return tonumber(fence or nil), call_state, tonumber(began or nil), trial == '1', request
end

local function make_fact(fence, call_state, began, is_trial, request)
  return int(fence) .. '~' .. call_state .. '~' .. int(began) .. (is_trial and '~1' or '~0')
    .. (request and '~' .. request or '')
end

-- Removes jobs from the active set, and their facts. For a job that does not return to the queue,
-- the caller must also call forget_jobs().
local function remove_calls(jobs)
  queue.write_all('ZREM', ACTIVE, jobs)
  queue.write_all('HDEL', FACTS, jobs)
end

local function forget_jobs(jobs)
  queue.write_all('HDEL', ORDERS, jobs)
  queue.write_all('SREM', ONLINE, jobs)
  queue.write_all('SREM', ABORTS, jobs)
end
