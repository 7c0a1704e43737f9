-- Starts the terms of leases again, and restores leases that Redis lost.
-- ARGV    after the names, for each: number of the resource, holder, fencing number
-- RETURNS {now, born, whether it recovers, a row as in parts/people for each}
-- @include "leases/parts/people"

-- Returns when a lease that started at `started` ends if it is renewed now.
local function renewed(started)
  if not template.renewable then return started + term_ms end
  return math.min(now + term_ms, started + (template.max_term_ms or math.huge))
end

-- Restores a lease from before Redis was emptied, if there is room.
local function restore(r, p, fence)
  local started = math.floor(fence / 1000)
  local ends = renewed(started)
  if ends <= now then return refused(STALE) end
  if r.held >= capacity and not p.ends then
    -- Of a single slot only the newest lease can be valid: the one restored before had ended.
    local other = capacity == 1 and redis_call('ZRANGE', r.holders, 0, 0)[1]
    local theirs = other and string.match(redis_call('HGET', r.facts, other) or '', '%d+')
    if not theirs or tonumber(theirs) >= fence then return refused(STALE) end
    end_hold(r, r.people[other] or {holder = other})
  end
  if p.order then leave_queue(r, p) end
  hold(r, p, fence, started, ends)
  state.last = math.max(state.last or 0, fence)
  return holds(GRANTED, p)
end

local function answer(r, p, fence)
  fence = tonumber(fence)
  local is_lost = is_recovering() and is_of_before(fence)
  if not p.fence and is_lost then return restore(r, p, fence) end
  if p.fence ~= fence then return refused(STALE) end
  if not template.renewable then return holds(is_lost and GRANTED or NOT_RENEWED, p) end
  local most = p.started + (template.max_term_ms or math.huge)
  if p.ends >= most then return holds(NOT_RENEWED, p) end
  hold(r, p, fence, p.started, math.max(p.ends, renewed(p.started)))
  return holds(GRANTED, p)
end

local function open(r)
  settle(r)
  look_up(r)
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  return headed(answer_all(ARGV, 3, open, answer))
end
