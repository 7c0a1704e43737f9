-- Adds jobs to the queue, or schedules them for later. Jobs that are already queued, scheduled or
-- active are left unchanged.
-- KEYS     as in jobs/parts/head and jobs/parts/rate
-- ARGV     4 to 7 as in jobs/parts/rate
--          from 8 on, for each job: its id, its order, 1 if it is online, the earliest time of the
--          call, µs, or ''
-- RETURNS  what describe_queue() returns (jobs/parts/look), as it is after the change
--          then for each job what describe_jobs() appends
-- @include "jobs/parts/look"
local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  begin_rate(KEYS, ARGV)
  local jobs = {}
  for i = 8, #ARGV, 4 do jobs[#jobs + 1] = ARGV[i] end
  local line_orders, later_until = queue.scores_of(LINE, jobs), queue.scores_of(LATER, jobs)
  local active_until = queue.scores_of(ACTIVE, jobs)

  local added, line_adds, later_adds, order_adds, online_adds = {}, {}, {}, {}, {}
  for n, job in ipairs(jobs) do
    local order, is_online, not_before = unpack(ARGV, 4 * n + 5, 4 * n + 7)
    if not (line_orders[n] or later_until[n] or active_until[n] or added[job]) then
      added[job] = true
      if (tonumber(not_before) or 0) > now then
        later_adds[#later_adds + 1], later_adds[#later_adds + 2] = not_before, job
        order_adds[#order_adds + 1], order_adds[#order_adds + 2] = job, order
      else
        line_adds[#line_adds + 1], line_adds[#line_adds + 2] = order, job
        -- After a rebuild of the queue, newly submitted jobs must come after these. The orders of
        -- jobs in `later` do not count, because they may be times in the future.
        target.last_order = math.max(target.last_order or 0, tonumber(order) - order % STEP)
      end
      if is_online == '1' then online_adds[#online_adds + 1] = job end
    end
  end
  queue.write_all('ZADD', LINE, line_adds)
  queue.write_all('ZADD', LATER, later_adds)
  queue.write_all('HSET', ORDERS, order_adds)
  queue.write_all('SADD', ONLINE, online_adds)
  finish_state()
  redis_call('ZREM', RESERVED, unpack(jobs))
  -- Idle workers sleep until the first job of `later` is due, so they must learn of an earlier job.
  local is_first = added[redis_call('ZRANGE', LINE, 0, 0)[1]]
    or #later_adds > 0 and added[redis_call('ZRANGE', LATER, 0, 0)[1]]
  if is_first then publish(target_name) end

  local replies = describe_queue()
  describe_jobs(jobs, replies)
  return replies
end
