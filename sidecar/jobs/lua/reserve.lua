-- Gives each job that is being submitted its order, and reserves a place in the queue for it.
-- KEYS     as in jobs/parts/head
-- ARGV     4 how long a reservation lasts, µs
--          then for each job:
--          its id
--          how many jobs may wait, or '' for no limit
--          its class, or ''
--          the target's classes by name, JSON, each with head_start (s) and priority, or ''
--          the earliest time of its call, µs, or ''
-- RETURNS  now; then for each job its order, or '' if the queue is full
-- @include "jobs/parts/state"
local WIDTH = 5

-- Returns the order of a job of this class that arrived at this time, µs. A class that the target
-- does not have has no effect.
local function compute_order(arrival, class, classes)
  local rules = classes[class]
  if not rules then return arrival end
  local number = 1
  for name in pairs(classes) do
    if name < class then number = number + 1 end
  end
  local head_start_us = math.floor(rules.head_start * 1000 + 0.5) * 1000
  return compose_order(arrival, head_start_us, rules.priority, number)
end

local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  local waiting, replies, adds = redis_call('ZCOUNT', RESERVED, '(' .. int(now), '+inf'), {now}, {}
  waiting = waiting + redis_call('ZCARD', LINE) + redis_call('ZCARD', LATER)
  for i = 5, #ARGV, WIDTH do
    local job, max_waiting, class, classes, due = unpack(ARGV, i, i + WIDTH - 1)
    if waiting >= (tonumber(max_waiting) or math.huge) then
      replies[#replies + 1] = ''
    else
      waiting = waiting + 1
      -- A job that must wait counts as arriving when it is due. Such jobs may have equal orders.
      local arrival = tonumber(due) and math.ceil(tonumber(due) / STEP) * STEP
      if not arrival then
        arrival = next_arrival_after(target.last_order, now)
        target.last_order = arrival
      end
      replies[#replies + 1] = compute_order(
        arrival, class, classes == '' and {} or cjson.decode(classes))
      adds[#adds + 1], adds[#adds + 2] = int(now + tonumber(ARGV[4])), job
    end
  end
  queue.write_all('ZADD', RESERVED, adds)
  finish_state()
  local expired = redis_call('ZRANGEBYSCORE', RESERVED, '-inf', int(now), 'LIMIT', 0, LOOP_LIMIT)
  queue.write_all('ZREM', RESERVED, expired)
  return replies
end
