-- Grants each holder a lease of a resource, or a place in its queue. For a waiting holder this is
-- the heartbeat. A called holder gets the lease. Idempotent.
-- ARGV    after the names, for each holder: number of the resource, holder, '1' if a newcomer may
--         join, order of a place that Redis may have lost or '', random number in [0, 1),
--         until when the client waits for the reply (ms, or ''), because a request that was delayed
--         in a batch or by a frozen Redis must not grant a lease to a client that is gone
-- RETURNS {now, born, whether Redis recovers, for each holder a row as in parts/clients}
-- @include "leases/parts/place"

-- Updates the heartbeats of all overdue holders in the batch first, so that none of them is skipped
-- when the next holders are called.
local function refresh_heartbeats(resource)
  if resource.waiting == 0 then return end
  for i, due in ipairs(redis_call('ZMSCORE', resource.due, unpack(resource.names))) do
    if due and tonumber(due) + claim_ms < now then
      redis_call('ZADD', resource.due, int(now), resource.names[i])
    end
  end
end

local function grant_lease(resource, client)
  store_lease(resource, client, next_fence(), now, now + term_ms)
  return make_lease_reply(GRANTED, client)
end

-- Grants the lease to each called holder in the batch. This comes before the replies to the others,
-- because their expected wait depends on the leases.
local function grant_reserved(resource)
  for _, name in ipairs(resource.names) do
    local client = resource.clients[name]
    if client.ends and not client.fence then grant_lease(resource, client) end
  end
end

local function answer_newcomer(resource, client, may_join, order, jitter, deadline)
  local is_returning = is_restorable(order)
  if now > deadline or not (may_join or is_returning) then return make_reply(GONE) end
  if resource.waiting == 0 and resource.held < capacity and not is_recovering() then
    return grant_lease(resource, client)
  end
  if not is_returning and template.max_waiting and resource.waiting >= template.max_waiting then
    local _, refresh = estimate_wait(resource, resource.waiting, jitter)
    return make_reply(FULL, resource.waiting, refresh)
  end
  local ahead = resource.waiting
  resource.waiting, client.order = resource.waiting + 1, is_returning and order or next_fence()
  put(resource.queue, int(client.order), client.holder)
  if is_returning then
    state.last = math.max(state.last or 0, order)
    flush()
    ahead = redis_call('ZRANK', resource.queue, client.holder)
  end
  return record_heartbeat(resource, client, ahead, jitter)
end

local function answer(resource, client, may_join, order, jitter, deadline)
  if client.fence then return make_lease_reply(GRANTED, client) end
  if not client.order then
    return answer_newcomer(resource, client, may_join == '1', tonumber(order), tonumber(jitter),
      tonumber(deadline) or math.huge)
  end
  local ahead = redis_call('ZRANK', resource.queue, client.holder)
  if not ahead then -- an earlier item of this batch took the place, which is not written yet
    flush()
    ahead = redis_call('ZRANK', resource.queue, client.holder)
  end
  return record_heartbeat(resource, client, ahead, tonumber(jitter))
end

local function open_resource(resource)
  refresh_heartbeats(resource)
  update_resource(resource)
  read_clients(resource)
  grant_reserved(resource)
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  return finish_reply(answer_batch(ARGV, 6, open_resource, answer))
end
