-- @include "leases/parts/resources"
-- @include "visitors/call_heads"
-- Brings a resource up to date: ends expired leases and turns, drops silent holders from the queue,
-- and calls the head of the queue.

-- Returns how many members the next loop may handle.
local function loop_limit(limit)
  return math.min(BOUND, budget, limit or BOUND)
end

-- Returns the new end of a turn that ended while no replica was available to accept it. Returns a
-- false value for any other lease or turn.
local function extended_turn_end(fact, ends)
  local back = state.back or 0
  return not fact and ends <= back and back + claim_ms > now and back + claim_ms
end

local function expire(r)
  local names, ends_of = queue.members_until(now, r.holders, loop_limit())
  if #names == 0 then return end
  local expired = {}
  for i, fact in ipairs(redis_call('HMGET', r.facts, unpack(names))) do
    local ends = tonumber(ends_of[i])
    local new_end = extended_turn_end(fact, ends)
    if new_end then
      redis_call('ZADD', r.holders, int(new_end), names[i])
    else
      expired[#expired + 1] = names[i]
      if fact then record_length(ends - tonumber(string.match(fact, ' (.*)'))) end
    end
  end
  if #expired == 0 then return end
  redis_call('ZREM', r.holders, unpack(expired))
  redis_call('HDEL', r.facts, unpack(expired))
  r.held, budget = r.held - #expired, budget - #expired
end

local function drop_silent(r)
  if now <= (state.back or -math.huge) + timeout_ms then return end
  local silent = queue.members_until(now - timeout_ms - 1, r.due, loop_limit())
  if #silent == 0 then return end
  redis_call('ZREM', r.due, unpack(silent))
  redis_call('ZREM', r.queue, unpack(silent))
  r.waiting, budget = r.waiting - #silent, budget - #silent
end

-- Calls the head of the queue: the holder has until the end of the claim window to take the lease.
-- Returns false if its heartbeat is overdue by more than the claim window.
local function call_holder(r, holder, due)
  due = due_at(due)
  if due + claim_ms < now then return false end
  local ends = math.max(due, now) + claim_ms
  redis_call('ZADD', r.holders, int(ends), holder)
  r.held = r.held + 1
  lower_soonest(r, ends)
  return true
end

-- Calls as many holders as there are free slots.
local function call_next(r)
  local limit = math.min(loop_limit(), r.waiting)
  local popped = queue.call_heads(r, capacity - r.held, limit, call_holder)
  r.waiting, budget = r.waiting - popped, budget - popped
end

local function settle(r)
  if is_due(r) and budget > 0 then
    if r.held > 0 then expire(r) end
    if r.waiting > 0 then drop_silent(r) end
  end
  if not is_recovering() then call_next(r) end
end
