-- Makes jobs active again after Redis lost the queue, because workers may still be making the
-- calls, or clients may still have the permits.
-- KEYS     as in jobs/parts/head
-- ARGV     from 4 on, for each job: its id, its fence, its order, how long it stays active, µs, the
--          state of its call (r, c or u, as in read_fact)
-- RETURNS  now
-- @include "jobs/parts/state"
local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  local jobs = {}
  for i = 4, #ARGV, 5 do jobs[#jobs + 1] = ARGV[i] end
  local active_until = queue.scores_of(ACTIVE, jobs)
  for n, job in ipairs(jobs) do
    local fence, order, lasts_us, call_state = unpack(ARGV, 5 * n, 5 * n + 3)
    if not active_until[n] then
      redis_call('ZADD', ACTIVE, int(now + tonumber(lasts_us)), job)
      redis_call('HSET', FACTS, job, make_fact(tonumber(fence), call_state, now, false))
      redis_call('HSET', ORDERS, job, order)
      redis_call('ZREM', LINE, job)
      redis_call('ZREM', LATER, job)
      if call_state ~= 'r' then redis_call('SADD', ONLINE, job) end
    end
    target.last_fence = math.max(target.last_fence or 0, tonumber(fence))
    target.last_order = math.max(target.last_order or 0, tonumber(order) - order % STEP)
  end
  finish_state()
  return {now}
end
