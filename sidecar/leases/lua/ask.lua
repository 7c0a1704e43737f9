-- Gives each holder a lease of a resource, or a place in its queue. For a waiting holder this is
-- the heartbeat. A holder whose turn it is gets the lease. Idempotent.
-- ARGV    after the names, for each holder: number of the resource, holder, '1' if a newcomer may
--         join, order of a place that Redis may have lost or '', random number in [0, 1),
--         until when the client waits for the reply (ms, or ''), because a call that was delayed
--         in a batch or by a frozen Redis must not grant a lease to a client that is gone
-- RETURNS {now, born, whether Redis recovers, for each holder a row as in parts/people}
-- @include "leases/parts/place"

-- Updates the heartbeats of all overdue holders in the batch first, so that none of them is skipped
-- when the next holders are called.
local function refresh_heartbeats(r)
  if r.waiting == 0 then return end
  for i, due in ipairs(redis_call('ZMSCORE', r.due, unpack(r.names))) do
    if due and tonumber(due) + claim_ms < now then
      redis_call('ZADD', r.due, int(now), r.names[i])
    end
  end
end

local function grant(r, p)
  hold(r, p, next_fence(), now, now + term_ms)
  return lease_reply(GRANTED, p)
end

-- Grants the lease to each holder in the batch whose turn it is. This comes before the replies to
-- the others, because their expected wait depends on it.
local function grant_turns(r)
  for _, name in ipairs(r.names) do
    local p = r.people[name]
    if p.ends and not p.fence then grant(r, p) end
  end
end

local function answer_newcomer(r, p, may_join, order, jitter, deadline)
  local is_returning = is_restorable(order)
  if now > deadline or not (may_join or is_returning) then return refused_reply(GONE) end
  if r.waiting == 0 and r.held < capacity and not is_recovering() then return grant(r, p) end
  if not is_returning and template.max_waiting and r.waiting >= template.max_waiting then
    return refused_reply(FULL, r.waiting, select(2, expected_wait(r, r.waiting, jitter)))
  end
  local ahead = r.waiting
  r.waiting, p.order = r.waiting + 1, is_returning and order or next_fence()
  put(r.queue, int(p.order), p.holder)
  if is_returning then
    state.last = math.max(state.last or 0, order)
    flush()
    ahead = redis_call('ZRANK', r.queue, p.holder)
  end
  return wait_here(r, p, ahead, jitter)
end

local function answer(r, p, may_join, order, jitter, deadline)
  if p.fence then return lease_reply(GRANTED, p) end
  if not p.order then
    return answer_newcomer(r, p, may_join == '1', tonumber(order), tonumber(jitter),
      tonumber(deadline) or math.huge)
  end
  local ahead = redis_call('ZRANK', r.queue, p.holder)
  if not ahead then -- an earlier item of this batch took the place; it is not written yet
    flush()
    ahead = redis_call('ZRANK', r.queue, p.holder)
  end
  return wait_here(r, p, ahead, tonumber(jitter))
end

local function open(r)
  refresh_heartbeats(r)
  settle(r)
  read_people(r)
  grant_turns(r)
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  return with_header(answer_all(ARGV, 6, open, answer))
end
