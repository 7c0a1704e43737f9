-- @include "jobs/parts/settle"
-- @include "jobs/parts/breaker"
-- Who is called now: at most as many as the target bears, and offline jobs at most as many as the
-- caller can take. One of these at the head lets nobody past.
-- KEYS     jobs/parts/head; jobs/parts/rated
-- ARGV     4 to 6 jobs/parts/rated  7 how many offline jobs  8 how many calls at a time
--          9 1: nothing is called  10 how long a runner's lock lasts, µs  11 a permit
-- RETURNS  now, 1 if the target is ready, when it is worth asking again (-1: when there is news),
--          when the store was found new, or 0; then of each call: job, fence, order, 1 if it is
--          online, 1 if it is a trial
-- How many more are looked at than the caller can take: some of them may be online.
local AHEAD = 20
local wanted, is_paused = tonumber(ARGV[7]), ARGV[9] == '1'
local lock_us, permit_us = tonumber(ARGV[10]), tonumber(ARGV[11])
local replies = {}

end_active()
end_waits()
if wanted > 0 and math.abs(now - (target.runner or 0)) >= 1000000 then target.runner = now end
-- Calls are made: a clock that jumps back changes nothing about that.
if target.ready and target.ready <= now then target.ready = 1 end
local is_trial = breaker() == 'trial'
local room = (is_trial and 1 or tonumber(ARGV[8])) - redis_call('ZCARD', ACTIVE)

-- From when on calls are made; math.huge: from some news on.
local function opens_at()
  if not target.ready or is_paused then return math.huge end
  return math.max(target.ready, target.held_until or 0, target.open_until or 0)
end

local function call(heads, rows, flags)
  local actives, facts, orders, taken = {}, {}, {}, {}
  local at
  for n, job in ipairs(heads) do
    local is_online = flags[n] == 1
    if not is_online and wanted == 0 then
      at = math.huge
      break
    end
    at = count_call()
    if at then break end
    local fence, order = next_fence(), rows[2 * n]
    taken[n] = job
    actives[2 * n - 1], actives[2 * n] = int(now + (is_online and permit_us or lock_us)), job
    facts[2 * n - 1], facts[2 * n] = job, fact(fence, is_online and 'c' or 'r', now, is_trial)
    orders[2 * n - 1], orders[2 * n] = job, order
    if not is_online then wanted = wanted - 1 end
    for _, word in ipairs({job, fence, tonumber(order), flags[n], is_trial and 1 or 0}) do
      replies[#replies + 1] = word
    end
  end
  count('called', #taken)
  write_all('ZREM', LINE, taken)
  write_all('ZADD', ACTIVE, actives)
  write_all('HSET', FACTS, facts)
  write_all('HSET', ORDERS, orders)
  close_rate()
  return #taken, at
end

-- @include "jobs/parts/answer"
