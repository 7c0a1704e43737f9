-- @include "rooms/parts/position"
-- Chooses who is called next: the visitor with the smallest order or, if sub-queues have weights,
-- the head of the sub-queue whose turn it is. The rule is Tijdeman's for the chairman assignment
-- problem (R. Tijdeman, Discrete Mathematics 32, 1980). For each call, every sub-queue that is not
-- empty gets its share of one call as credit. Among the sub-queues with enough credit, the one that
-- can wait the least gets the call, and pays one call of credit. As long as the same sub-queues are
-- not empty, each has always had its share of the calls, to within one call. stats.credit_n is the
-- credit of sub-queue n, 0 if it is empty.
local store_credits, pop_heads
do
local new_credits -- the credits to store if the visitor who was popped last is called

-- Returns the number of the sub-queue whose turn it is, and the credits of all sub-queues after its
-- call; nil if all are empty.
local function choose_sub_queue()
  local total, nonempty = 0, 0
  for n, length in ipairs(get_sub_queue_lengths()) do
    if length > 0 then
      total, nonempty = total + lines[n].weight, nonempty + 1
    end
  end
  if nonempty == 0 then return nil end
  local enough = nonempty > 1 and 1 / (2 * (nonempty - 1)) or 0
  local best, credits, least, best_has_enough = nil, {}, math.huge, false
  for n, length in ipairs(get_sub_queue_lengths()) do
    if length > 0 then
      local share = lines[n].weight / total
      credits[n] = (stats['credit_' .. n] or 0) + share
      -- A sub-queue with enough credit goes first. 1e-9 allows for rounding errors.
      local has_enough, slack = credits[n] > enough - 1e-9, (1 - enough - credits[n]) / share
      if not best or (has_enough and not best_has_enough)
        or (has_enough == best_has_enough and slack < least - 1e-9) then
        best, least, best_has_enough = n, slack, has_enough
      end
    else
      credits[n] = 0
    end
  end
  credits[best] = credits[best] - 1
  return best, credits
end

-- Stores the credits after a call. If a visitor is dropped as silent, this function is not called,
-- and the credits stay the same.
function store_credits()
  for n, credit in pairs(new_credits or {}) do
    stats['credit_' .. n] = credit
  end
end

local function pop_from_sub_queue()
  local line, credits = choose_sub_queue()
  if not line then return {}, {} end
  new_credits = credits
  local low, high = order_range(line)
  local head = redis_call('ZRANGEBYSCORE', WAITING, line == 1 and '-inf' or int(low),
    line == #lines and '+inf' or '(' .. int(high), 'WITHSCORES', 'LIMIT', 0, 1)
  redis_call('ZREM', WAITING, head[1])
  cache.lengths[line] = cache.lengths[line] - 1
  return queue.split(head)
end

-- Pops visitors from the head of `waiting`, and returns the same values as queue.pop_heads(). From
-- weighted sub-queues, pops one visitor at a time.
function pop_heads(waiting, max_count)
  new_credits = nil
  local drawn_places = is_weighted and count_drawn_places()
  if drawn_places then max_count = math.max(1, math.min(max_count, drawn_places)) end
  local visitors, orders
  if drawn_places == 0 then
    visitors, orders = pop_from_sub_queue()
  else
    visitors, orders = queue.pop_heads(waiting, max_count)
  end
  forget_size(waiting)
  remove_arrivals(visitors)
  return visitors, orders, max_count
end
end
