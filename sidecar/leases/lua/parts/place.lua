-- @include "leases/parts/clients"
-- Handles places in the queue: estimates waits, and decides when the next heartbeat is due.

-- The holders who may get one of the next free slots poll when that slot becomes free. So do the
-- NEAR_HEAD - 1 holders behind them, because the holders ahead may have left.
local NEAR_HEAD = 5

-- Returns the earliest and the expected time at which the n-th slot (from 0) becomes free. Assumes
-- that a called holder takes the lease and holds it as long as the average.
local function estimate_slot_times(resource, n)
  resource.slots = resource.slots or {}
  if not resource.slots[n] then
    local at = n + math.max(0, resource.held - capacity)
    local row = redis_call('ZRANGE', resource.holders, at, at, 'WITHSCORES')
    local recovers_at = is_recovering() and recovers_until or 0
    local free = tonumber(row[2] or nil)
    local expected = free
    if not free then
      -- Nobody has the slot: a recovery blocks it, or update_resource(), which calls a limited
      -- number of holders at a time, has not called a holder for this slot yet.
      free = is_recovering() and recovers_at or now + 100
      expected = free
    elseif redis_call('HEXISTS', resource.facts, row[1]) == 0 then
      expected = math.max(now, free - claim_ms) + (state.held_ms or term_ms)
    end
    resource.slots[n] = {math.max(free, recovers_at), math.max(expected, recovers_at)}
  end
  return unpack(resource.slots[n])
end

-- Returns two times in ms: the expected wait with `ahead` holders ahead, and the time until the
-- next heartbeat. The latter is the template's heartbeat_interval, if there is one. Otherwise it is
-- 2 s for a holder who may get one of the next free slots, and a tenth of the wait (1 to 24 s) plus
-- up to 25 % jitter for the others. It is at most half of heartbeat_timeout, and near the head of
-- the queue it ends at the earliest time at which a slot becomes free.
local function estimate_wait(resource, ahead, jitter)
  local free, expected = estimate_slot_times(resource, ahead % capacity)
  local rounds = math.floor(ahead / capacity)
  local wait = expected - now + rounds * (state.held_ms or term_ms)
  local refresh = 2000
  if template.heartbeat_interval_ms then
    refresh = template.heartbeat_interval_ms
  elseif ahead >= capacity then
    refresh = math.min(24000, math.max(1000, wait / 10)) * (1 + jitter / 4)
  end
  refresh = math.min(refresh, timeout_ms / 2)
  local behind = ahead - capacity + 1
  if behind < NEAR_HEAD then refresh = math.min(refresh, free - now + 5 * math.max(0, behind)) end
  return wait, math.max(1, math.floor(refresh))
end

-- Stores when a waiting holder's next heartbeat is due, and returns the reply.
local function record_heartbeat(resource, client, ahead, jitter)
  local wait, refresh = estimate_wait(resource, ahead, jitter)
  put(resource.due, int(now + refresh), client.holder)
  lower_next_expiry(resource, get_silent_time(now + refresh))
  return {WAITING, 0, 0, 0, client.order, ahead, resource.waiting,
    is_recovering() and -1 or math.floor(wait), refresh}
end

-- Returns whether a lost place with this order may be restored: only during the time after the loss
-- in which its holder's next heartbeat may be due.
local function is_restorable(order)
  if not order or not is_before_loss(order) then return false end
  local longest_ms = math.min(template.heartbeat_interval_ms or 30000, timeout_ms / 2) + claim_ms
  return now < state.born + math.max(term_ms, longest_ms)
end
