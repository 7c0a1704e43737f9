-- Gives each holder a lease of a resource if a slot is free, else a place in the resource's queue.
-- For a waiting holder this is the heartbeat. A called holder gets the lease. Idempotent.
-- ARGV    after the resources' names, for each holder:
--         the index of the resource
--         the holder
--         '1' if the holder may join as a newcomer
--         the order of a place that Redis may have lost, or ''
--         a random number in [0, 1)
--         the deadline until which the client waits for the reply, ms, or ''. After the deadline, a
--         request that was delayed in a batch or by a frozen Redis gets no lease.
-- RETURNS {now, born, 1 if Redis recovers, {for each holder a row as in parts/clients}}
-- @include "leases/parts/place"

-- Updates the heartbeats of all overdue holders in the batch, so that none of these holders is
-- skipped when the next holders are called.
local function refresh_heartbeats(resource)
  if resource.waiting == 0 then return end
  for i, due in ipairs(redis_call('ZMSCORE', resource.due, unpack(resource.names))) do
    if due and tonumber(due) + claim_ms < now then
      redis_call('ZADD', resource.due, int(now), resource.names[i])
    end
  end
end

-- Grants a lease and returns the reply.
local function grant_lease(resource, client)
  store_lease(resource, client, next_fence(), now, now + term_ms)
  return make_lease_reply(GRANTED, client)
end

-- Grants a lease to each called holder in the batch. This comes before the replies to the other
-- holders, because their expected waits depend on the leases.
local function grant_to_called_holders(resource)
  for _, name in ipairs(resource.names) do
    local client = resource.clients[name]
    if client.ends and not client.fence then grant_lease(resource, client) end
  end
end

-- Returns the reply to a holder who has no lease and no place.
local function handle_newcomer(resource, client, may_join, order, jitter, deadline)
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

-- Returns the reply to one holder of the batch.
local function handle_request(resource, client, may_join, order, jitter, deadline)
  if client.fence then return make_lease_reply(GRANTED, client) end
  if not client.order then
    return handle_newcomer(resource, client, may_join == '1', tonumber(order), tonumber(jitter),
      tonumber(deadline) or math.huge)
  end
  local ahead = redis_call('ZRANK', resource.queue, client.holder)
  if not ahead then -- an earlier request of this batch took the place, which is not written yet
    flush()
    ahead = redis_call('ZRANK', resource.queue, client.holder)
  end
  return record_heartbeat(resource, client, ahead, tonumber(jitter))
end

local function update_and_read(resource)
  refresh_heartbeats(resource)
  update_resource(resource)
  read_clients(resource)
  grant_to_called_holders(resource)
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  return finish_reply(handle_batch(ARGV, 6, update_and_read, handle_request))
end
