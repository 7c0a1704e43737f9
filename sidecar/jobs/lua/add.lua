-- Puts jobs in the queue, or has them wait until a moment. Jobs that wait already, or are active,
-- stay as they are.
-- KEYS     jobs/parts/head
-- ARGV     from 4 on, for each: job, order, 1 if it is online, not before, µs, or ''
-- RETURNS  now; then for each its place in the queue, from 1; 0: it is not in the queue
-- @include "jobs/parts/state"
local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  local jobs = {}
  for i = 4, #ARGV, 4 do jobs[#jobs + 1] = ARGV[i] end
  local queued, laters = queue.scores_of(LINE, jobs), queue.scores_of(LATER, jobs)
  local actives = queue.scores_of(ACTIVE, jobs)

  local added, waiting, later, orders, online = {}, {}, {}, {}, {}
  for n, job in ipairs(jobs) do
    local order, is_online, not_before = unpack(ARGV, 4 * n + 1, 4 * n + 3)
    if not (queued[n] or laters[n] or actives[n] or added[job]) then
      added[job] = true
      if (tonumber(not_before) or 0) > now then
        later[#later + 1], later[#later + 2] = not_before, job
        orders[#orders + 1], orders[#orders + 2] = job, order
      else
        waiting[#waiting + 1], waiting[#waiting + 2] = order, job
      end
      if is_online == '1' then online[#online + 1] = job end
      -- After a rebuild: jobs that are submitted later come after these.
      target.last_order = math.max(target.last_order or 0, tonumber(order) - order % STEP)
    end
  end
  queue.write_all('ZADD', LINE, waiting)
  queue.write_all('ZADD', LATER, later)
  queue.write_all('HSET', ORDERS, orders)
  queue.write_all('SADD', ONLINE, online)
  finish_state()
  redis_call('ZREM', RESERVED, unpack(jobs))
  if added[redis_call('ZRANGE', LINE, 0, 0)[1]] then publish(target_name) end

  local replies = {now}
  for _, job in ipairs(jobs) do
    replies[#replies + 1] = (redis_call('ZRANK', LINE, job) or -1) + 1
  end
  return replies
end
