-- @include "leases/parts/state_and_fence"
-- @include "visitors/pending_writes"
-- The resources of this script, as tables: the names of their keys, how many holders have a lease
-- or a turn (`held`) and how many wait (`waiting`), the stored `ends` (nil if there is none), and
-- `soonest`, the earliest of the times that this script has set.
local resources
local function begin_resources(KEYS, ARGV)
  resources = {}
  queue.begin_writes()
  if last_name_at > 4 then
    local ends = redis_call('ZMSCORE', ENDS, unpack(ARGV, 5, last_name_at))
    for i = 1, last_name_at - 4 do
      local key = 4 * i
      local r = {
        name = ARGV[4 + i], ends = tonumber(ends[i] or nil), soonest = math.huge,
        holders = KEYS[key], facts = KEYS[key + 1], queue = KEYS[key + 2], due = KEYS[key + 3],
        held = redis_call('ZCARD', KEYS[key]), waiting = redis_call('ZCARD', KEYS[key + 2]),
      }
      r.is_new = r.held + r.waiting == 0
      resources[i] = r
    end
  end
end

-- `ends` is never later than the time of the resource's next expiry. It may be earlier, because a
-- heartbeat delays that expiry without writing `ends`; the next script corrects it.
local function is_due(r)
  return (r.ends or 0) <= now
end

local function lower_soonest(r, at)
  r.soonest = math.min(r.soonest, at)
end

-- Returns the time from which a holder counts as silent whose heartbeat was due at `due`, ms.
local function silent_from(due)
  return due_at(due) + timeout_ms + 1
end

local function next_expiry(r)
  flush()
  return math.min(queue.earliest_time(r.holders), silent_from(queue.earliest_time(r.due)))
end

local function finish()
  local empty = {}
  for _, r in ipairs(resources) do
    if r.held + r.waiting == 0 then
      if r.ends then empty[#empty + 1] = r.name end
    else
      if is_due(r) and not r.is_new then r.soonest = next_expiry(r) end
      if r.waiting > 0 and r.held < capacity then
        lower_soonest(r, math.max(now, recovers_until))
      end
      if not r.ends then put(RESOURCES, 0, r.name) end
      if not r.ends or is_due(r) or r.soonest < r.ends then put(ENDS, int(r.soonest), r.name) end
    end
  end
  queue.write_all('ZREM', RESOURCES, empty)
  queue.write_all('ZREM', ENDS, empty)
  flush()
  finish_state()
end

-- Writes the state. Returns the whole reply: now, when the template was first used in this Redis,
-- ms, whether Redis recovers (1 or 0), and `replies`.
local function with_header(replies)
  finish()
  return {now, state.born, is_recovering() and 1 or 0, replies}
end

-- How many members the loops of this script may still handle.
local budget
local function begin(KEYS, ARGV)
  begin_template(KEYS, ARGV)
  begin_state(ARGV)
  begin_resources(KEYS, ARGV)
  budget = 1000
end
