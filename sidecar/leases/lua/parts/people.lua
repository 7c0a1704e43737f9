-- @include "leases/parts/settle"
-- The holders of a batch as tables, one for each holder of each resource: {holder, ends, fence,
-- started, order}. A holder with a lease has `ends` and `fence`, one whose turn it is has only
-- `ends`, a waiting one has `order`.

-- Reads the items of the batch from ARGV[from] on. Each has `fields` arguments: the number of a
-- resource, the holder, and others. Sets r.names, the resource's holders in this batch, and
-- r.people, their tables by name.
local function read_items(ARGV, from, fields)
  local items = {}
  for i = from, #ARGV, fields do
    local r = resources[tonumber(ARGV[i])]
    r.names, r.people = r.names or {}, r.people or {}
    if not r.people[ARGV[i + 1]] then
      r.people[ARGV[i + 1]] = {holder = ARGV[i + 1]}
      r.names[#r.names + 1] = ARGV[i + 1]
    end
    items[#items + 1] = {r, r.people[ARGV[i + 1]], unpack(ARGV, i + 2, i + fields - 1)}
  end
  return items
end

-- Ends the lease or the turn of a holder.
local function end_hold(r, p)
  if p.fence then record_length(math.min(now, p.ends) - p.started) end
  redis_call('ZREM', r.holders, p.holder)
  redis_call('HDEL', r.facts, p.holder)
  r.held, p.ends, p.fence, p.started = r.held - 1, nil, nil, nil
end

local function leave_queue(r, p)
  redis_call('ZREM', r.queue, p.holder)
  redis_call('ZREM', r.due, p.holder)
  r.waiting, p.order = r.waiting - 1, nil
end

-- Reads the leases, turns and places of the batch's holders.
local function read_people(r)
  local ends = r.held > 0 and redis_call('ZMSCORE', r.holders, unpack(r.names)) or {}
  local orders = r.waiting > 0 and redis_call('ZMSCORE', r.queue, unpack(r.names)) or {}
  local facts
  for i, name in ipairs(r.names) do
    local p = r.people[name]
    p.ends, p.order = tonumber(ends[i] or nil), tonumber(orders[i] or nil)
    if p.ends then
      facts = facts or redis_call('HMGET', r.facts, unpack(r.names))
      local fence, started = string.match(facts[i] or '', '(%d+) (%d+)')
      p.fence, p.started = tonumber(fence or nil), tonumber(started or nil)
      if p.ends <= now then -- expired, but settle() has not removed it, because its loop is bounded
        p.ends = extended_turn_end(p.fence, p.ends) or p.ends
        if p.ends <= now then end_hold(r, p) end
      end
    end
  end
end

-- Begins or extends a lease.
local function hold(r, p, fence, started, ends)
  redis_call('ZADD', r.holders, int(ends), p.holder)
  redis_call('HSET', r.facts, p.holder, int(fence) .. ' ' .. int(started))
  if not p.ends then r.held = r.held + 1 end
  p.ends, p.fence, p.started, r.slots = ends, fence, started, nil
  lower_soonest(r, ends)
end

local GRANTED, WAITING, GONE, FULL, STALE, NOT_RENEWED = 1, 0, -1, -2, -3, -4

-- Return the reply about a holder, as leases/store.py reads it:
-- {outcome, fence, started, expires, order, ahead, waiting, wait (-1: unknown), refresh}
local function lease_reply(outcome, p)
  return {outcome, int(p.fence), p.started, p.ends, '0', 0, 0, -1, 0}
end
local function refused_reply(outcome, waiting, refresh)
  return {outcome, '0', 0, 0, '0', 0, waiting or 0, -1, refresh or 0}
end

-- Calls `open` for each resource, then `answer` for each item of the batch. Returns the replies.
local function answer_all(ARGV, fields, open, answer)
  local items, replies = read_items(ARGV, last_name_at + 1, fields), {}
  for _, r in ipairs(resources) do open(r) end
  for i, item in ipairs(items) do replies[i] = answer(unpack(item)) end
  return replies
end
