-- @include "leases/parts/people"
-- Places in the queue: the expected wait, and when to ask again.

-- How many behind the head also ask at the moment when the next slot is free, so that none of them
-- is a poll late if everybody ahead has left.
local NEAR = 5

-- Returns when the slot that ends as the n-th (from 0) is free, at the earliest and as expected: a
-- holder whose turn it is will come, and then hold the resource.
local function slot(r, n)
  r.slots = r.slots or {}
  if not r.slots[n] then
    local at = n + math.max(0, r.held - capacity)
    local row = redis_call('ZRANGE', r.holders, at, at, 'WITHSCORES')
    local opens = is_recovering() and recovers_until or 0
    local free = tonumber(row[2] or nil)
    local expected = free
    if not free then
      -- Only the recovery keeps it, or a bounded loop has not freed it yet.
      free = is_recovering() and opens or now + 100
      expected = free
    elseif redis_call('HEXISTS', r.facts, row[1]) == 0 then
      expected = math.max(now, free - claim_ms) + (state.held_ms or term_ms)
    end
    r.slots[n] = {math.max(free, opens), math.max(expected, opens)}
  end
  return unpack(r.slots[n])
end

-- Returns the expected wait behind `ahead` holders, and when to ask again, ms: after a tenth of the
-- wait, 1 to 30 s, or after the template's interval. Up to a quarter is added at random, so that
-- holders who came together do not ask together. The head of the queue asks every 2 s, and at the
-- moment when its slot is free.
local function outlook(r, ahead, jitter)
  local free, expected = slot(r, ahead % capacity)
  local laps = math.floor(ahead / capacity)
  local wait = expected - now + laps * (state.held_ms or term_ms)
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

local function wait_here(r, p, ahead, jitter)
  local wait, refresh = outlook(r, ahead, jitter)
  put(r.due, int(now + refresh), p.holder)
  expect(r, silent_from(now + refresh))
  return {WAITING, '0', 0, 0, int(p.order), ahead, r.waiting,
    is_recovering() and -1 or math.floor(wait), refresh}
end

-- Returns whether to restore a place with this order: only as long as its holder's next heartbeat
-- may still be due.
local function is_believed(order)
  if not order or not is_of_before(order) then return false end
  local longest_ms = math.min(template.interval_ms or 30000, timeout_ms / 2) + claim_ms
  return now < state.born + math.max(term_ms, longest_ms)
end
