-- @include "leases/parts/people"
-- Places in the queue: the expected wait, and when to ask again.

-- So many behind those who are next come when the next slot is free, too: should everybody before
-- them have left, none of them is a poll late.
local NEAR = 5

-- Of the slot that ends as the n-th (from 0): when it is free at the earliest, and when it is
-- expected to be; for one whose turn it is will come, and then hold it.
local function slot(r, n)
  r.slots = r.slots or {}
  if not r.slots[n] then
    local at = n + math.max(0, r.held - capacity)
    local row = redis_call('ZRANGE', r.holders, at, at, 'WITHSCORES')
    local opens = is_recovering() and recovers_until or 0
    local free = tonumber(row[2] or nil)
    local expected = free
    if not free then
      -- Nothing but the recovery keeps it, or a bounded loop did not come so far.
      free = is_recovering() and opens or now + 100
      expected = free
    elseif redis_call('HEXISTS', r.facts, row[1]) == 0 then
      expected = math.max(now, free - claim_ms) + (state.held_ms or term_ms)
    end
    r.slots[n] = {math.max(free, opens), math.max(expected, opens)}
  end
  return unpack(r.slots[n])
end

-- The wait with so many ahead, and when to ask again, ms: a tenth of the wait, 1 to 30 s, or as
-- the template fixes it. Up to a quarter is added at random, so that those who came together do not
-- ask together. The next in the queue look every 2 s, and at the moment when their slot is free.
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

-- A lost place comes back as long as a holder whose heartbeat is due may be on the way.
local function is_believed(order)
  if not order or not is_of_before(order) then return false end
  local longest_ms = math.min(template.interval_ms or 30000, timeout_ms / 2) + claim_ms
  return now < state.born + math.max(term_ms, longest_ms)
end
