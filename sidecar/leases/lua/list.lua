-- Lists the holders of resources, and a page of their queues. Changes nothing.
-- ARGV    after the names: the first place in the queue to list (0: the head), and how many
-- RETURNS {now, for each resource: {name, how many wait, {holder, when the lease or the turn ends,
--          fencing number and start with a space between, or '' for a turn, …}, a newcomer's
--          expected wait, ms (-1: unknown), {waiting holder, order, when the next heartbeat is due,
--          …}}}
-- @include "leases/parts/place"

local function holders_of(r)
  local names, ends = queue.split(
    redis_call('ZRANGEBYSCORE', r.holders, '(' .. int(now), '+inf', 'WITHSCORES'))
  local row = {}
  local facts = #names > 0 and redis_call('HMGET', r.facts, unpack(names)) or {}
  for j, name in ipairs(names) do
    row[#row + 1], row[#row + 2], row[#row + 3] = name, ends[j], facts[j] or ''
  end
  return row, #names
end

local function newcomer_wait(r, held)
  if is_recovering() then return -1 end
  if held < capacity and r.waiting == 0 then return 0 end
  return math.max(0, math.floor((expected_wait(r, r.waiting, 0))))
end

local function waiting_of(r, first, number)
  local names, orders = {}, {}
  if number > 0 and r.waiting > 0 then
    names, orders = queue.split(
      redis_call('ZRANGE', r.queue, int(first), int(first + number - 1), 'WITHSCORES'))
  end
  local row = {}
  local due = #names > 0 and redis_call('ZMSCORE', r.due, unpack(names)) or {}
  for j, name in ipairs(names) do
    row[#row + 1], row[#row + 2], row[#row + 3] = name, orders[j], due[j] or '0'
  end
  return row
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  local first, number = tonumber(ARGV[last_name_at + 1]), tonumber(ARGV[last_name_at + 2])
  local rows = {}
  for i, r in ipairs(resources) do
    local holders, held = holders_of(r)
    rows[i] = {r.name, r.waiting, holders, newcomer_wait(r, held), waiting_of(r, first, number)}
  end
  return {now, rows}
end
