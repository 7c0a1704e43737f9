-- @include "jobs/parts/breaker"
-- @include "jobs/parts/rate"
-- @include "jobs/parts/settle"
-- Calls jobs from the head of the queue, as long as the target and the worker have capacity.

-- How many jobs to read beyond the worker's free slots, because some of the jobs may be online.
local LOOKAHEAD = 20
local free_slots -- how many more offline jobs the worker can call
local is_paused -- whether the target is paused
local is_trial -- whether the next call is a trial
local free_calls -- how many more calls may be active
local lock_us, permit_us -- how long a lock and a permit last, µs
local replies

-- Returns the time from which calls may be made, µs, or math.huge if only a wake-up can allow them.
local function find_opening_time()
  if not target.ready or is_paused then return math.huge end
  return math.max(target.ready, target.held_until or 0, target.open_until or 0)
end

-- Calls the jobs in `heads`, the head of the queue, as far as the rate and the free slots allow.
-- Returns how many jobs were called, and when the next job can be called, µs, or nil if all were.
local function call_jobs(heads, head_orders, online_flags)
  local actives, facts, orders, called = {}, {}, {}, {}
  local next_at
  for n, job in ipairs(heads) do
    local is_online = online_flags[n] == 1
    if not is_online and free_slots == 0 then
      next_at = math.huge
      break
    end
    next_at = count_call()
    if next_at then break end
    local fence, order = make_fence(), head_orders[n]
    called[n] = job
    actives[2 * n - 1], actives[2 * n] = int(now + (is_online and permit_us or lock_us)), job
    facts[2 * n - 1], facts[2 * n] = job, make_fact(fence, is_online and 'c' or 'r', now, is_trial)
    orders[2 * n - 1], orders[2 * n] = job, order
    if not is_online then free_slots = free_slots - 1 end
    for _, value in ipairs({job, fence, tonumber(order), online_flags[n], is_trial and 1 or 0}) do
      replies[#replies + 1] = value
    end
  end
  count('called', #called)
  if #called > 0 then target.last_call = now end
  queue.write_all('ZREM', LINE, called)
  queue.write_all('ZADD', ACTIVE, actives)
  queue.write_all('HSET', FACTS, facts)
  queue.write_all('HSET', ORDERS, orders)
  close_rate()
  return #called, next_at
end

-- Calls all jobs that can be called now. Returns when the next job can be called, µs, or math.huge
-- if only a wake-up can change that.
local function call_next()
  local opens_us = find_opening_time()
  if opens_us > now then return redis_call('ZCARD', LINE) > 0 and opens_us or math.huge end
  if free_calls <= 0 then return math.huge end
  local last = math.min(LOOP_LIMIT, free_calls, free_slots + LOOKAHEAD) - 1
  local heads, head_orders = queue.split(redis_call('ZRANGE', LINE, 0, last, 'WITHSCORES'))
  if #heads == 0 then return math.huge end
  open_rate()
  local online_flags = redis_call('SMISMEMBER', ONLINE, unpack(heads))
  local called, next_at = call_jobs(heads, head_orders, online_flags)
  if next_at then return next_at end
  return called < free_calls and redis_call('ZCARD', LINE) > 0 and now or math.huge
end

-- Returns when a worker should claim again, µs. The time has passed if jobs that are due remain.
local function find_next_claim_time()
  local call_at = call_next()
  return math.min(call_at, queue.earliest_time(ACTIVE), queue.earliest_time(LATER))
end
