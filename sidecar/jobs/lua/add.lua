-- Puts jobs in the line, or lets them wait until a moment; whoever is in the line, waits or is
-- active stays as they are.
-- KEYS     jobs/parts/head
-- ARGV     from 4 on, for each: job, order, 1 if it is online, not before, µs, or ''
-- RETURNS  now; then for each its place in the line, the first one's 1; 0: it is not in it
-- @include "jobs/parts/state"
-- @include "queue/arrival"
local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  local jobs = {}
  for i = 4, #ARGV, 4 do jobs[#jobs + 1] = ARGV[i] end
  local lines, laters, actives = scores(LINE, jobs), scores(LATER, jobs), scores(ACTIVE, jobs)

  local news, line, later, orders, online = {}, {}, {}, {}, {}
  for n, job in ipairs(jobs) do
    local order, is_online, not_before = unpack(ARGV, 4 * n + 1, 4 * n + 3)
    if not (lines[n] or laters[n] or actives[n] or news[job]) then
      news[job] = true
      if (tonumber(not_before) or 0) > now then
        later[#later + 1], later[#later + 2] = not_before, job
        orders[#orders + 1], orders[#orders + 2] = job, order
      else
        line[#line + 1], line[#line + 2] = order, job
      end
      if is_online == '1' then online[#online + 1] = job end
      -- Of a line that is built again: those who come later come after them.
      target.last_order = math.max(target.last_order or 0, tonumber(order) - order % STEP)
    end
  end
  write_all('ZADD', LINE, line)
  write_all('ZADD', LATER, later)
  write_all('HSET', ORDERS, orders)
  write_all('SADD', ONLINE, online)
  finish_state()
  redis_call('ZREM', RESERVED, unpack(jobs))
  if news[redis_call('ZRANGE', LINE, 0, 0)[1]] then publish(target_name) end

  local replies = {now}
  for _, job in ipairs(jobs) do
    replies[#replies + 1] = (redis_call('ZRANK', LINE, job) or -1) + 1
  end
  return replies
end
