-- @include "leases/parts/resources"
-- @include "visitors/call_heads"
-- Brings a resource up to date: ends leases and turns that are over, drops silent places, and calls
-- the head of the queue.

local function bound(most)
  return math.min(BOUND, budget, most or BOUND)
end

-- Returns the new end of a turn during which no replica was there to take it, or a false value.
local function ends_anew(fact, ends)
  local back = state.back or 0
  return not fact and ends <= back and back + claim_ms > now and back + claim_ms
end

local function expire(r)
  local names, moments = queue.over_by(now, r.holders, bound())
  if #names == 0 then return end
  local over = {}
  for i, fact in ipairs(redis_call('HMGET', r.facts, unpack(names))) do
    local ends = tonumber(moments[i])
    local anew = ends_anew(fact, ends)
    if anew then
      redis_call('ZADD', r.holders, int(anew), names[i])
    else
      over[#over + 1] = names[i]
      if fact then measure_end(ends - tonumber(string.match(fact, ' (.*)'))) end
    end
  end
  if #over == 0 then return end
  redis_call('ZREM', r.holders, unpack(over))
  redis_call('HDEL', r.facts, unpack(over))
  r.held, budget = r.held - #over, budget - #over
end

local function drop_silent(r)
  if now <= (state.back or -math.huge) + timeout_ms then return end
  local silent = queue.over_by(now - timeout_ms - 1, r.due, bound())
  if #silent == 0 then return end
  redis_call('ZREM', r.due, unpack(silent))
  redis_call('ZREM', r.queue, unpack(silent))
  r.waiting, budget = r.waiting - #silent, budget - #silent
end

-- Gives the head of the queue its turn. Returns false if its heartbeat is overdue by more than the
-- claim window.
local function call(r, holder, due)
  due = due_at(due)
  if due + claim_ms < now then return false end
  local ends = math.max(due, now) + claim_ms
  redis_call('ZADD', r.holders, int(ends), holder)
  r.held = r.held + 1
  expect(r, ends)
  return true
end

-- Calls as many as there are free slots.
local function call_next(r)
  local most = math.min(bound(), r.waiting)
  local popped = queue.call_heads(r, capacity - r.held, most, call)
  r.waiting, budget = r.waiting - popped, budget - popped
end

local function settle(r)
  if is_due(r) and budget > 0 then
    if r.held > 0 then expire(r) end
    if r.waiting > 0 then drop_silent(r) end
  end
  if not is_recovering() then call_next(r) end
end
