-- Renews leases for another term, and restores leases that Redis lost.
-- ARGV    after the resources' names, for each lease: the index of the resource, the holder, the
--         fencing number
-- RETURNS {now, born, 1 if Redis recovers, {for each lease a row as in parts/clients}}
-- @include "leases/parts/clients"

-- Returns when a lease that began at `started` would end if it were renewed now.
local function get_renewed_end(started)
  if not template.renewable then return started + term_ms end
  return math.min(now + term_ms, started + (template.max_term_ms or math.huge))
end

-- Restores a lease from before Redis was emptied, if a slot is free. Returns the reply.
local function restore_lease(resource, client, fence)
  local started = math.floor(fence / 1000)
  local ends = get_renewed_end(started)
  if ends <= now then return make_reply(STALE) end
  if resource.held >= capacity and not client.ends then
    -- If there is only one slot, only the newest lease can be valid. So a lease with a smaller
    -- fencing number, which was restored before, must have ended before Redis was emptied.
    local other = capacity == 1 and redis_call('ZRANGE', resource.holders, 0, 0)[1]
    local fact = other and redis_call('HGET', resource.facts, other)
    local other_fence = string.match(fact or '', '%d+')
    if not other_fence or tonumber(other_fence) >= fence then return make_reply(STALE) end
    free_slot(resource, resource.clients[other] or {holder = other})
  end
  if client.order then leave_queue(resource, client) end
  store_lease(resource, client, fence, started, ends)
  state.last = math.max(state.last or 0, fence)
  return make_lease_reply(GRANTED, client)
end

-- Renews or restores one lease, and returns the reply.
local function renew(resource, client, fence)
  fence = tonumber(fence)
  local is_lost = is_recovering() and is_before_loss(fence)
  if not client.fence and is_lost then return restore_lease(resource, client, fence) end
  if client.fence ~= fence then return make_reply(STALE) end
  if not template.renewable then
    return make_lease_reply(is_lost and GRANTED or NOT_RENEWED, client)
  end
  local latest_end = client.started + (template.max_term_ms or math.huge)
  if client.ends >= latest_end then return make_lease_reply(NOT_RENEWED, client) end
  local ends = math.max(client.ends, get_renewed_end(client.started))
  store_lease(resource, client, fence, client.started, ends)
  return make_lease_reply(GRANTED, client)
end

local function update_and_read(resource)
  update_resource(resource)
  read_clients(resource)
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  return finish_reply(handle_batch(ARGV, 3, update_and_read, renew))
end
