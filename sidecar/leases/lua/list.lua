-- Lists the holders of resources, and a page of each resource's queue. Changes nothing.
-- ARGV    after the resources' names: the first place in the queue to list (0: the head), and how
--         many places
-- RETURNS {now, {for each resource a row}}. A row has:
--         the name of the resource
--         how many holders wait
--         {for each holder: its name, when its lease or reservation ends, the fencing number and
--         the beginning of its lease with a space between, or '' for a reservation}
--         a newcomer's expected wait, ms (-1: unknown)
--         {for each waiting holder: its name, its order, when its next heartbeat is due}
-- @include "leases/parts/place"

local function read_holders(resource)
  local names, ends = queue.split(
    redis_call('ZRANGEBYSCORE', resource.holders, '(' .. int(now), '+inf', 'WITHSCORES'))
  local row = {}
  local facts = #names > 0 and redis_call('HMGET', resource.facts, unpack(names)) or {}
  for j, name in ipairs(names) do
    row[#row + 1], row[#row + 2], row[#row + 3] = name, ends[j], facts[j] or ''
  end
  return row, #names
end

local function estimate_newcomer_wait(resource, held)
  if is_recovering() then return -1 end
  if held < capacity and resource.waiting == 0 then return 0 end
  return math.max(0, math.floor((estimate_wait(resource, resource.waiting, 0))))
end

local function read_queue_page(resource, first, number)
  local names, orders = {}, {}
  if number > 0 and resource.waiting > 0 then
    names, orders = queue.split(
      redis_call('ZRANGE', resource.queue, int(first), int(first + number - 1), 'WITHSCORES'))
  end
  local row = {}
  local due = #names > 0 and redis_call('ZMSCORE', resource.due, unpack(names)) or {}
  for j, name in ipairs(names) do
    row[#row + 1], row[#row + 2], row[#row + 3] = name, orders[j], due[j] or '0'
  end
  return row
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  local first, number = tonumber(ARGV[last_name_index + 1]), tonumber(ARGV[last_name_index + 2])
  local rows = {}
  for i, resource in ipairs(resources) do
    local holders, held = read_holders(resource)
    rows[i] = {resource.name, resource.waiting, holders, estimate_newcomer_wait(resource, held),
      read_queue_page(resource, first, number)}
  end
  return {now, rows}
end
