-- @include "leases/parts/state_and_fence"
-- @include "visitors/pending_writes"
-- The resources of this script, as tables: the names of their keys, how many hold the resource
-- (`held`, turns included) and wait for it (`waiting`), `ends` as stored (nil: not stored), and
-- `soonest`, the next moment that this script set.
local resources
local function begin_resources(KEYS, ARGV)
  resources = {}
  queue.begin_writes()
  if named > 4 then
    local ends = redis_call('ZMSCORE', ENDS, unpack(ARGV, 5, named))
    for i = 1, named - 4 do
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

-- `ends` is never later than the next moment at which something is due. It may be earlier: a
-- heartbeat moves that moment without writing it, and the next script corrects it.
local function is_due(r)
  return (r.ends or 0) <= now
end

local function expect(r, at)
  r.soonest = math.min(r.soonest, at)
end

-- Returns the first ms at which the holder with this due heartbeat has been silent for too long.
local function silent_from(due)
  return due_at(due) + timeout_ms + 1
end

local function next_moment(r)
  flush()
  return math.min(queue.first_moment(r.holders), silent_from(queue.first_moment(r.due)))
end

local function finish()
  local gone = {}
  for _, r in ipairs(resources) do
    if r.held + r.waiting == 0 then
      if r.ends then gone[#gone + 1] = r.name end
    else
      if is_due(r) and not r.is_new then r.soonest = next_moment(r) end
      if r.waiting > 0 and r.held < capacity then expect(r, math.max(now, recovers_until)) end
      if not r.ends then put(RESOURCES, 0, r.name) end
      if not r.ends or is_due(r) or r.soonest < r.ends then put(ENDS, int(r.soonest), r.name) end
    end
  end
  queue.write_all('ZREM', RESOURCES, gone)
  queue.write_all('ZREM', ENDS, gone)
  flush()
  finish_state()
end

-- Adds the start of every reply: now, when the template was born, whether it recovers.
local function headed(replies)
  finish()
  return {now, state.born, is_recovering() and 1 or 0, replies}
end

-- How many members the loops of this script may still touch.
local budget
local function begin(KEYS, ARGV)
  begin_template(KEYS, ARGV)
  begin_state(ARGV)
  begin_resources(KEYS, ARGV)
  budget = 1000
end
