-- @include "leases/parts/resources"
-- What happened by itself at a resource since a script looked: leases and turns that ended, people
-- who fell silent, and whose turn it is.

local function bound(most)
  return math.min(BOUND, budget, most or BOUND)
end

-- When a turn ends that nobody could come to take, for it begins anew.
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

-- Gives the heads of the queue their turn, as many as there are free slots. One whose heartbeat is
-- overdue by more than the claim window is dropped instead, and nobody waits for it.
local function call_heads(r)
  local left = bound()
  while r.held < capacity and r.waiting > 0 and left > 0 do
    local heads = queue.pop_heads(r.queue, math.min(capacity - r.held, left))
    if #heads == 0 then break end
    local dues = queue.pop_scores(r.due, heads)
    for i, holder in ipairs(heads) do
      local due = due_at(tonumber(dues[i] or 0))
      if due + claim_ms >= now then
        local ends = math.max(due, now) + claim_ms
        redis_call('ZADD', r.holders, int(ends), holder)
        r.held = r.held + 1
        expect(r, ends)
      end
    end
    r.waiting, left, budget = r.waiting - #heads, left - #heads, budget - #heads
  end
end

local function settle(r)
  if is_due(r) and budget > 0 then
    if r.held > 0 then expire(r) end
    if r.waiting > 0 then drop_silent(r) end
  end
  if not is_recovering() then call_heads(r) end
end
