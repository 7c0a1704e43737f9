-- Renews leases for another term, and restores leases that Redis lost.
-- ARGV    after the names, for each lease: number of the resource, holder, fencing number
-- RETURNS {now, born, whether Redis recovers, for each lease a row as in parts/people}
-- @include "leases/parts/people"

-- Returns when a lease that began at `started` ends if it is renewed now.
local function renewed_end(started)
  if not template.renewable then return started + term_ms end
  return math.min(now + term_ms, started + (template.max_term_ms or math.huge))
end

-- Restores a lease from before Redis was emptied, if there is room.
local function restore(r, p, fence)
  local started = math.floor(fence / 1000)
  local ends = renewed_end(started)
  if ends <= now then return refused_reply(STALE) end
  if r.held >= capacity and not p.ends then
    -- With a single slot only the newest lease can be valid, so a lease with a smaller fencing
    -- number that was restored before had already ended.
    local other = capacity == 1 and redis_call('ZRANGE', r.holders, 0, 0)[1]
    local other_fence = other and string.match(redis_call('HGET', r.facts, other) or '', '%d+')
    if not other_fence or tonumber(other_fence) >= fence then return refused_reply(STALE) end
    end_hold(r, r.people[other] or {holder = other})
  end
  if p.order then leave_queue(r, p) end
  hold(r, p, fence, started, ends)
  state.last = math.max(state.last or 0, fence)
  return lease_reply(GRANTED, p)
end

local function answer(r, p, fence)
  fence = tonumber(fence)
  local is_lost = is_recovering() and is_before_loss(fence)
  if not p.fence and is_lost then return restore(r, p, fence) end
  if p.fence ~= fence then return refused_reply(STALE) end
  if not template.renewable then return lease_reply(is_lost and GRANTED or NOT_RENEWED, p) end
  local most = p.started + (template.max_term_ms or math.huge)
  if p.ends >= most then return lease_reply(NOT_RENEWED, p) end
  hold(r, p, fence, p.started, math.max(p.ends, renewed_end(p.started)))
  return lease_reply(GRANTED, p)
end

local function open(r)
  settle(r)
  read_people(r)
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  return with_header(answer_all(ARGV, 3, open, answer))
end
