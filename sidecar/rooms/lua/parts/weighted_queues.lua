-- @include "rooms/parts/position"
-- Who is called next: the smallest order; where sub-queues have weights, the head of the one whose
-- turn it is. That is Tijdeman's rule for the chairman assignment problem (R. Tijdeman, Discrete
-- Mathematics 32, 1980): each call gives every line in which somebody waits its share of a call,
-- and among those that have saved enough it takes the one that could wait the least; while the
-- same lines have people, each has had within one call of its share at any time.
-- stats.credit_n: what line n has saved. A line that is empty saves nothing.
local charged

local function share_out()
  local total, busy = 0, 0
  for n, length in ipairs(line_lengths()) do
    if length > 0 then
      total, busy = total + lines[n].weight, busy + 1
    end
  end
  if busy == 0 then return nil end
  local enough = busy > 1 and 1 / (2 * (busy - 1)) or 0
  local best, credits, least, saves = nil, {}, math.huge, false
  for n, length in ipairs(line_lengths()) do
    if length > 0 then
      local share = lines[n].weight / total
      credits[n] = (stats['credit_' .. n] or 0) + share
      -- One that has saved enough goes before one that has not; rounding must not decide.
      local has, slack = credits[n] > enough - 1e-9, (1 - enough - credits[n]) / share
      if not best or (has and not saves) or (has == saves and slack < least - 1e-9) then
        best, least, saves = n, slack, has
      end
    else
      credits[n] = 0
    end
  end
  credits[best] = credits[best] - 1
  return best, credits
end

-- A call is charged to the sub-queue; a visitor who turns out to be silent is not.
local function charge_line()
  for n, credit in pairs(charged or {}) do
    stats['credit_' .. n] = credit
  end
end

local function pop_from_line()
  local line, credits = share_out()
  if not line then return {}, {} end
  charged = credits
  local low, high = bounds(line)
  local head = redis_call('ZRANGEBYSCORE', WAITING, line == 1 and '-inf' or int(low),
    line == #lines and '+inf' or '(' .. int(high), 'WITHSCORES', 'LIMIT', 0, 1)
  redis_call('ZREM', WAITING, head[1])
  found.lengths[line] = found.lengths[line] - 1
  return queue.split(head)
end

-- Takes heads out of `waiting` as queue.pop_heads() does, of weighted sub-queues one at a time.
local function pop_heads(waiting, most)
  charged = nil
  local drawn_first = is_weighted and count_drawn()
  if drawn_first then most = math.max(1, math.min(most, drawn_first)) end
  local visitors, orders
  if drawn_first == 0 then
    visitors, orders = pop_from_line()
  else
    visitors, orders = queue.pop_heads(waiting, most)
  end
  resized(waiting)
  forget_arrivals(visitors)
  return visitors, orders, most
end
