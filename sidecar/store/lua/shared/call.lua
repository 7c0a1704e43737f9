-- @include "shared/due"
-- @include "shared/rate"
-- @include "shared/measure"
-- While a slot is free and the rate allows, gives the head of the line a provisional
-- session. A head whose heartbeat is overdue by more than claim_window (or not in `due`: a
-- store that evicts took it) is dropped, and nobody waits for it. Returns how many left.
local function call_next()
  if room.queue_all then return 0 end
  local free = room.total_active_users - redis_call('ZCARD', ACTIVE)
  if free <= 0 then return 0 end
  local tokens = rate_tokens()
  local popped = 0
  while free > 0 and tokens >= 1 and popped < BOUND do
    local head = redis_call('ZPOPMIN', WAITING)
    local visitor = head[1]
    if not visitor then break end
    popped = popped + 1
    local due = due_at(redis_call('ZSCORE', DUE, visitor) or 0)
    redis_call('ZREM', DUE, visitor)
    if due + claim_ms < now then
      measure_drops(1)
      event('expired', visitor, 'silent')
    else
      redis_call('ZADD', ACTIVE, int(math.max(due, now) + claim_ms), visitor)
      free = free - 1
      spend_token()
      tokens = tokens - 1
      event('called', visitor, 'head')
    end
  end
  return popped
end
