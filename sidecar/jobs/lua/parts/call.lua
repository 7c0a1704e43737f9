-- @include "jobs/parts/breaker"
-- @include "jobs/parts/rate"
-- @include "jobs/parts/settle"
-- Calls jobs from the head of the queue, as long as there is room.
-- Jobs that are looked at beyond those that the worker can take: some of them may be online.
local AHEAD = 20
local free_slots, is_paused, is_trial, room
local lock_us, permit_us
local replies

-- Returns from when on calls are made, µs; math.huge: after some wake-up.
local function opens_at()
  if not target.ready or is_paused then return math.huge end
  return math.max(target.ready, target.held_until or 0, target.open_until or 0)
end

-- Returns how many of the heads were called, and when the next call can be made, or nil.
local function call(heads, head_orders, online_flags)
  local actives, facts, orders, called = {}, {}, {}, {}
  local at
  for n, job in ipairs(heads) do
    local is_online = online_flags[n] == 1
    if not is_online and free_slots == 0 then
      at = math.huge
      break
    end
    at = count_call()
    if at then break end
    local fence, order = next_fence(), head_orders[n]
    called[n] = job
    actives[2 * n - 1], actives[2 * n] = int(now + (is_online and permit_us or lock_us)), job
    facts[2 * n - 1], facts[2 * n] = job, fact(fence, is_online and 'c' or 'r', now, is_trial)
    orders[2 * n - 1], orders[2 * n] = job, order
    if not is_online then free_slots = free_slots - 1 end
    for _, value in ipairs({job, fence, tonumber(order), online_flags[n], is_trial and 1 or 0}) do
      replies[#replies + 1] = value
    end
  end
  count('called', #called)
  queue.write_all('ZREM', LINE, called)
  queue.write_all('ZADD', ACTIVE, actives)
  queue.write_all('HSET', FACTS, facts)
  queue.write_all('HSET', ORDERS, orders)
  close_rate()
  return #called, at
end

-- Returns when the next job can be called; math.huge: not before an active one ends.
local function call_next()
  local opens = opens_at()
  if opens > now then return redis_call('ZCARD', LINE) > 0 and opens or math.huge end
  if room <= 0 then return math.huge end
  local last = math.min(BOUND, room, free_slots + AHEAD) - 1
  local heads, head_orders = queue.split(redis_call('ZRANGE', LINE, 0, last, 'WITHSCORES'))
  if #heads == 0 then return math.huge end
  open_rate()
  local called, at = call(heads, head_orders, redis_call('SMISMEMBER', ONLINE, unpack(heads)))
  if at then return at end
  return called < room and redis_call('ZCARD', LINE) > 0 and now or math.huge
end

local function next_moment()
  local moment = call_next()
  if is_more then return now end
  return math.min(moment, queue.first_moment(ACTIVE), queue.first_moment(LATER))
end
