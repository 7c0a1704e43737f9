-- Gives holders a resource, or a place in its queue. For a waiting holder this is the heartbeat. It
-- takes the resource when it is the holder's turn. Idempotent.
-- ARGV    after the names, for each holder: number of the resource, holder, '1' if a newcomer may
--         join, order of a place that Redis may have lost or '', random number in [0, 1),
--         until when the client waits for the reply (ms, or ''): a call that lay in a batch, or in
--         a frozen Redis, must grant nothing to a client that is gone
-- RETURNS {now, born, whether it recovers, a row as in parts/people for each}
-- @include "leases/parts/place"

-- Notes all holders of the batch as present first, so that none of them is passed over.
local function note_present(r)
  if r.waiting == 0 then return end
  for i, due in ipairs(redis_call('ZMSCORE', r.due, unpack(r.names))) do
    if due and tonumber(due) + claim_ms < now then
      redis_call('ZADD', r.due, int(now), r.names[i])
    end
  end
end

local function grant(r, p)
  hold(r, p, next_fence(), now, now + term_ms)
  return holds(GRANTED, p)
end

-- Grants the resource to the next holder before the others are told when to ask again.
local function claim(r)
  for _, name in ipairs(r.names) do
    local p = r.people[name]
    if p.ends and not p.fence then grant(r, p) end
  end
end

local function newcomer(r, p, may_join, order, jitter, deadline)
  local is_back = is_believed(order)
  if now > deadline or not (may_join or is_back) then return refused(GONE) end
  if r.waiting == 0 and r.held < capacity and not is_recovering() then return grant(r, p) end
  if not is_back and template.max_waiting and r.waiting >= template.max_waiting then
    return refused(FULL, r.waiting, select(2, outlook(r, r.waiting, jitter)))
  end
  local ahead = r.waiting
  r.waiting, p.order = r.waiting + 1, is_back and order or next_fence()
  put(r.queue, int(p.order), p.holder)
  if is_back then
    state.last = math.max(state.last or 0, order)
    flush()
    ahead = redis_call('ZRANK', r.queue, p.holder)
  end
  return wait_here(r, p, ahead, jitter)
end

local function answer(r, p, may_join, order, jitter, deadline)
  if p.fence then return holds(GRANTED, p) end
  if not p.order then
    return newcomer(r, p, may_join == '1', tonumber(order), tonumber(jitter),
      tonumber(deadline) or math.huge)
  end
  local ahead = redis_call('ZRANK', r.queue, p.holder)
  if not ahead then -- the place is from earlier in this batch, and not written yet
    flush()
    ahead = redis_call('ZRANK', r.queue, p.holder)
  end
  return wait_here(r, p, ahead, tonumber(jitter))
end

local function open(r)
  note_present(r)
  settle(r)
  look_up(r)
  claim(r)
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  return headed(answer_all(ARGV, 6, open, answer))
end
