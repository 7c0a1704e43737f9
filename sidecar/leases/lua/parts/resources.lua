-- @include "leases/parts/state_and_fence"
-- @include "visitors/pending_writes"
-- Reads and writes the resources of one script call.

-- The resources. Each is a table that has the names of its keys and:
--   held           how many holders have a lease or a reservation
--   waiting        how many holders wait
--   stored_expiry  the resource's score in the sorted set `ends`, or nil if it has none
--   next_expiry    the earliest expiry that this script has set
local resources
local function load_resources(KEYS, ARGV)
  resources = {}
  queue.begin_writes()
  if last_name_index > 4 then
    local ends = redis_call('ZMSCORE', ENDS, unpack(ARGV, 5, last_name_index))
    for i = 1, last_name_index - 4 do
      local key = 4 * i
      local resource = {
        name = ARGV[4 + i], stored_expiry = tonumber(ends[i] or nil), next_expiry = math.huge,
        holders = KEYS[key], facts = KEYS[key + 1], queue = KEYS[key + 2], due = KEYS[key + 3],
        held = redis_call('ZCARD', KEYS[key]), waiting = redis_call('ZCARD', KEYS[key + 2]),
      }
      resource.is_new = resource.held + resource.waiting == 0
      resources[i] = resource
    end
  end
end

-- Returns whether something may have expired at a resource. `stored_expiry` is never later than the
-- next expiry, but may be earlier, because a heartbeat makes the next expiry later without a write
-- to ENDS.
local function is_due(resource)
  return (resource.stored_expiry or 0) <= now
end

local function lower_next_expiry(resource, expiry)
  resource.next_expiry = math.min(resource.next_expiry, expiry)
end

-- Returns the time, in ms, from which a holder counts as silent, if the heartbeat is due at `due`.
local function get_silent_time(due)
  return get_due_after_outage(due) + timeout_ms + 1
end

local function find_next_expiry(resource)
  flush()
  local silent_at = get_silent_time(queue.earliest_time(resource.due))
  return math.min(queue.earliest_time(resource.holders), silent_at)
end

local function write_resources()
  local empty = {}
  for _, resource in ipairs(resources) do
    if resource.held + resource.waiting == 0 then
      if resource.stored_expiry then empty[#empty + 1] = resource.name end
    else
      local is_stale = not resource.stored_expiry or is_due(resource)
      if is_due(resource) and not resource.is_new then
        resource.next_expiry = find_next_expiry(resource)
      end
      if resource.waiting > 0 and resource.held < capacity then
        lower_next_expiry(resource, math.max(now, recovers_until))
      end
      if not resource.stored_expiry then put(RESOURCES, 0, resource.name) end
      if is_stale or resource.next_expiry < resource.stored_expiry then
        put(ENDS, int(resource.next_expiry), resource.name)
      end
    end
  end
  queue.write_all('ZREM', RESOURCES, empty)
  queue.write_all('ZREM', ENDS, empty)
  flush()
  write_state()
end

-- Writes the resources and the template's state. Returns the script's whole reply: {now, when the
-- template was first used in this Redis (ms), 1 if Redis recovers or 0, `replies`}.
local function finish_reply(replies)
  write_resources()
  return {now, state.born, is_recovering() and 1 or 0, replies}
end

-- The number of set members that the loops of this call may still handle.
local member_budget
local function begin(KEYS, ARGV)
  read_template(KEYS, ARGV)
  load_state(ARGV)
  load_resources(KEYS, ARGV)
  member_budget = 1000
end
