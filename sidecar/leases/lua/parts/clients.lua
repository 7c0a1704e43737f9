-- @include "leases/parts/expiry_and_calls"
-- Reads and changes the clients of a batch: tables {holder, ends, fence, started, order}, one for
-- each holder at each resource. A client with a lease has `ends`, `fence` and `started`; a called
-- client has only `ends`, when its reservation ends; a waiting client has only `order`.

-- Returns the requests of the batch, each as {resource, client, further arguments}. Each request
-- has `width` arguments from ARGV[from] on: the index of the resource, the holder, and others. Sets
-- resource.names, the names of the resource's holders in this batch, and resource.clients, the
-- clients by these names.
local function read_requests(ARGV, from, width)
  local requests = {}
  for i = from, #ARGV, width do
    local resource = resources[tonumber(ARGV[i])]
    resource.names, resource.clients = resource.names or {}, resource.clients or {}
    if not resource.clients[ARGV[i + 1]] then
      resource.clients[ARGV[i + 1]] = {holder = ARGV[i + 1]}
      resource.names[#resource.names + 1] = ARGV[i + 1]
    end
    local client = resource.clients[ARGV[i + 1]]
    requests[#requests + 1] = {resource, client, unpack(ARGV, i + 2, i + width - 1)}
  end
  return requests
end

-- Ends the lease or the reservation of a client.
local function free_slot(resource, client)
  if client.fence then record_lease_length(math.min(now, client.ends) - client.started) end
  redis_call('ZREM', resource.holders, client.holder)
  redis_call('HDEL', resource.facts, client.holder)
  resource.held, client.ends, client.fence, client.started = resource.held - 1, nil, nil, nil
end

local function leave_queue(resource, client)
  redis_call('ZREM', resource.queue, client.holder)
  redis_call('ZREM', resource.due, client.holder)
  resource.waiting, client.order = resource.waiting - 1, nil
end

-- Reads the leases, reservations and places of the batch's clients.
local function read_clients(resource)
  local names = resource.names
  local ends = resource.held > 0 and redis_call('ZMSCORE', resource.holders, unpack(names)) or {}
  local orders = resource.waiting > 0 and redis_call('ZMSCORE', resource.queue, unpack(names)) or {}
  local facts
  for i, name in ipairs(names) do
    local client = resource.clients[name]
    client.ends, client.order = tonumber(ends[i] or nil), tonumber(orders[i] or nil)
    if client.ends then
      facts = facts or redis_call('HMGET', resource.facts, unpack(names))
      local fence, started = string.match(facts[i] or '', '(%d+) (%d+)')
      client.fence, client.started = tonumber(fence or nil), tonumber(started or nil)
      -- An expired lease may be left, because update_resource() removes a limited number.
      if client.ends <= now then
        client.ends = get_extended_end(client.fence, client.ends) or client.ends
        if client.ends <= now then free_slot(resource, client) end
      end
    end
  end
end

-- Begins or extends a lease.
local function store_lease(resource, client, fence, started, ends)
  redis_call('ZADD', resource.holders, int(ends), client.holder)
  redis_call('HSET', resource.facts, client.holder, int(fence) .. ' ' .. int(started))
  if not client.ends then resource.held = resource.held + 1 end
  client.ends, client.fence, client.started, resource.slots = ends, fence, started, nil
  lower_next_expiry(resource, ends)
end

local GRANTED, WAITING, GONE, FULL, STALE, NOT_RENEWED = 1, 0, -1, -2, -3, -4

-- make_lease_reply() and make_reply() return the reply about a client, as leases/store.py reads it:
-- {outcome, fence, beginning of the lease, end of the lease, order, number of holders ahead, number
-- of waiting holders, expected wait (-1: unknown), time until the next heartbeat}. Times are in ms.
local function make_lease_reply(outcome, client)
  return {outcome, client.fence, client.started, client.ends, 0, 0, 0, -1, 0}
end
local function make_reply(outcome, waiting, refresh)
  return {outcome, 0, 0, 0, 0, 0, waiting or 0, -1, refresh or 0}
end

-- Calls `update_and_read` for each resource, then `handle` for each request of the batch. Returns
-- the replies. A request has `width` arguments.
local function handle_batch(ARGV, width, update_and_read, handle)
  local requests, replies = read_requests(ARGV, last_name_index + 1, width), {}
  for _, resource in ipairs(resources) do update_and_read(resource) end
  for i, request in ipairs(requests) do replies[i] = handle(unpack(request)) end
  return replies
end
