-- @include "leases/parts/people"
-- Places in the queue: the expected wait, and when to ask again.

-- How many holders behind the head also poll at about the time when the next slot becomes free. So
-- none of them is one poll late if all holders ahead have left.
local NEAR = 5

-- Returns when the slot that becomes free as the n-th (from 0) is free: at the earliest, and as
-- expected. A holder whose turn it is is expected to come and to hold a lease as long as usual.
local function slot_free_at(r, n)
  r.slots = r.slots or {}
  if not r.slots[n] then
    local at = n + math.max(0, r.held - capacity)
    local row = redis_call('ZRANGE', r.holders, at, at, 'WITHSCORES')
    local recovers_at = is_recovering() and recovers_until or 0
    local free = tonumber(row[2] or nil)
    local expected = free
    if not free then
      -- Nobody holds the slot: a recovery blocks it, or settle() has not called for it yet, because
      -- its loop is bounded.
      free = is_recovering() and recovers_at or now + 100
      expected = free
    elseif redis_call('HEXISTS', r.facts, row[1]) == 0 then
      expected = math.max(now, free - claim_ms) + (state.held_ms or term_ms)
    end
    r.slots[n] = {math.max(free, recovers_at), math.max(expected, recovers_at)}
  end
  return unpack(r.slots[n])
end

-- Returns the expected wait behind `ahead` holders, and how long to wait before asking again, ms: a
-- tenth of the wait, 1 to 30 s, or the template's interval. Up to a quarter is added at random, so
-- that holders who came together do not ask together. The head of the queue asks every 2 s, and
-- when its slot becomes free.
local function expected_wait(r, ahead, jitter)
  local free, expected = slot_free_at(r, ahead % capacity)
  local rounds = math.floor(ahead / capacity)
  local wait = expected - now + rounds * (state.held_ms or term_ms)
  local refresh = 2000
  if template.interval_ms then
    refresh = template.interval_ms
  elseif ahead >= capacity then
    refresh = math.min(24000, math.max(1000, wait / 10)) * (1 + jitter / 4)
  end
  refresh = math.min(refresh, timeout_ms / 2)
  local behind = ahead - capacity + 1
  if behind < NEAR then refresh = math.min(refresh, free - now + 5 * math.max(0, behind)) end
  return wait, math.max(1, math.floor(refresh))
end

-- Sets a waiting holder's next heartbeat and returns the reply.
local function wait_here(r, p, ahead, jitter)
  local wait, refresh = expected_wait(r, ahead, jitter)
  put(r.due, int(now + refresh), p.holder)
  lower_soonest(r, silent_from(now + refresh))
  return {WAITING, '0', 0, 0, int(p.order), ahead, r.waiting,
    is_recovering() and -1 or math.floor(wait), refresh}
end

-- Returns whether to restore a lost place with this order. It is restored only while its holder's
-- next heartbeat after the loss may still be outstanding.
local function is_restorable(order)
  if not order or not is_before_loss(order) then return false end
  local longest_ms = math.min(template.interval_ms or 30000, timeout_ms / 2) + claim_ms
  return now < state.born + math.max(term_ms, longest_ms)
end
