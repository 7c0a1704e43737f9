-- @include "visitors/script"
-- Collects the members to add to sorted sets while a script runs, because one ZADD with many
-- members takes about half the time of many ZADDs. A script must call flush() before it reads a set
-- that may have pending members, and at its end.

-- The pending members and scores of each set, by key.
local pending
-- The cached sizes of sets, by key. A script that adds or removes members in another way than put()
-- must call forget_size().
local sizes

function queue.begin_writes()
  pending, sizes = {}, {}
end

-- Adds a member to a set, or changes its score, at the next flush().
local function put(key, score, member)
  local add = pending[key]
  if not add then
    add = {}
    pending[key] = add
  end
  local n = #add
  add[n + 1] = score
  add[n + 2] = member
end

local function forget_size(key)
  sizes[key] = nil
end

local function flush()
  if next(pending) == nil then return end
  for key, members in pairs(pending) do
    redis_call('ZADD', key, unpack(members))
    sizes[key] = nil
  end
  pending = {}
end

-- Returns how many members a set has.
local function size(key)
  if pending[key] then flush() end
  sizes[key] = sizes[key] or redis_call('ZCARD', key)
  return sizes[key]
end
