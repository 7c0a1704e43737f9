-- @include "rooms/parts/heartbeat_due"
-- @include "rooms/parts/rate"
-- @include "rooms/parts/measure"
-- @include "rooms/parts/weighted_queues"
-- Gives the head of the queue its provisional session if its heartbeat (its score in `due`)
-- was in time; else drops it. Whether it was.
local function call(visitor, score, order)
  score = tonumber(score or 0)
  if silent_from(score) < now then
    measure_drops(1)
    event('expired', visitor, 'silent', 'position', 1)
    return false
  end
  put(ACTIVE, int(called_until(score)), visitor)
  spend_token()
  event('called', visitor, 'head', 'position', 1, 'order', order)
  return true
end

-- While a slot is free and the rate allows, calls the head of the queue. A head whose heartbeat
-- is overdue for too long (or not in `due`: a store that evicts took it) is dropped, and nobody
-- waits for it. Returns how many left.
local function call_next()
  flush()
  if room.queue_all or phase ~= OPEN or stage == 2 then return 0 end
  local free = cap - size(ACTIVE)
  if free <= 0 then return 0 end
  local tokens = rate_tokens()
  local popped = 0
  -- As many at a time as would all be called, if none of them is silent.
  while free > 0 and tokens >= 1 and popped < BOUND do
    local most = math.min(free, math.floor(tokens), BOUND - popped)
    local visitors, orders
    visitors, orders, most = pop_heads(most)
    if #visitors == 0 then break end
    popped = popped + #visitors
    local scores = queue.pop_scores(DUE, visitors)
    for i, visitor in ipairs(visitors) do
      if call(visitor, scores[i], orders[i]) then
        free = free - 1
        tokens = tokens - 1
        charge_line()
      end
    end
    if #visitors < most then break end
  end
  flush()
  return popped
end
