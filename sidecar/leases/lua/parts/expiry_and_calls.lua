-- @include "leases/parts/resources"
-- @include "visitors/call_heads"
-- Updates a resource: ends expired leases and reservations, removes silent holders from the queue,
-- and calls the holders at the head of the queue. A called holder has a reservation: until the
-- claim window ends, nobody else gets the slot.

-- Returns how many members of sets the next loop may handle.
local function get_loop_limit()
  return math.min(MAX_LOOP_MEMBERS, member_budget)
end

-- Returns a later end for a reservation that ended during an outage, because its holder could not
-- take the lease. Returns a false value for other reservations and for leases. `fact` is the value
-- in the hash `facts`, which only a lease has.
local function get_extended_end(fact, ends)
  local outage_end = state.back or 0
  return not fact and ends <= outage_end and outage_end + claim_ms > now and outage_end + claim_ms
end

local function end_expired_holders(resource)
  local names, ends_of = queue.members_until(now, resource.holders, get_loop_limit())
  if #names == 0 then return end
  local expired = {}
  for i, fact in ipairs(redis_call('HMGET', resource.facts, unpack(names))) do
    local ends = tonumber(ends_of[i])
    local new_end = get_extended_end(fact, ends)
    if new_end then
      redis_call('ZADD', resource.holders, int(new_end), names[i])
    else
      expired[#expired + 1] = names[i]
      if fact then record_lease_length(ends - tonumber(string.match(fact, ' (.*)'))) end
    end
  end
  if #expired == 0 then return end
  redis_call('ZREM', resource.holders, unpack(expired))
  redis_call('HDEL', resource.facts, unpack(expired))
  resource.held, member_budget = resource.held - #expired, member_budget - #expired
end

local function remove_silent_holders(resource)
  if now <= (state.back or -math.huge) + timeout_ms then return end
  local silent = queue.members_until(now - timeout_ms - 1, resource.due, get_loop_limit())
  if #silent == 0 then return end
  redis_call('ZREM', resource.due, unpack(silent))
  redis_call('ZREM', resource.queue, unpack(silent))
  resource.waiting, member_budget = resource.waiting - #silent, member_budget - #silent
end

-- Notifies the replica that keeps a request of a called holder open. If an ACL forbids the message,
-- the holder takes the lease with the next heartbeat.
local function wake_holder(resource, holder)
  local channel = string.gsub(STATE, 'state$', 'calls')
  redis.pcall('PUBLISH', channel, resource.name .. ' ' .. holder)
end

-- Calls a holder, who then has until the end of the claim window to take the lease. Returns false,
-- and calls nobody, if the holder's heartbeat is overdue by more than the claim window.
local function call_holder(resource, holder, due)
  due = get_due_after_outage(due)
  if due + claim_ms < now then return false end
  local ends = math.max(due, now) + claim_ms
  redis_call('ZADD', resource.holders, int(ends), holder)
  resource.held = resource.held + 1
  lower_next_expiry(resource, ends)
  wake_holder(resource, holder)
  return true
end

-- Calls as many holders as there are free slots.
local function call_waiting_holders(resource)
  local limit = math.min(get_loop_limit(), resource.waiting)
  local popped = queue.call_heads(resource, capacity - resource.held, limit, call_holder)
  resource.waiting, member_budget = resource.waiting - popped, member_budget - popped
end

-- Updates a resource. If this script may handle no more members, the next script does the rest.
local function update_resource(resource)
  if is_due(resource) and member_budget > 0 then
    if resource.held > 0 then end_expired_holders(resource) end
    if resource.waiting > 0 then remove_silent_holders(resource) end
  end
  if not is_recovering() then call_waiting_holders(resource) end
end
