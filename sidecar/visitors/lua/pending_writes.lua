-- @include "visitors/script"
-- Members to add to sorted sets, collected while a script runs, because one ZADD with many members
-- costs about half as much as many ZADDs. A script calls flush() before it reads such a set;
-- finish() calls it at the end.
local pending
-- The cached sizes of sets. put() and flush() keep them right; a script that changes a set in
-- another way calls resized().
local sizes

function queue.begin_writes()
  pending, sizes = {}, {}
end

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

local function resized(key)
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

local function size(key)
  if pending[key] then flush() end
  sizes[key] = sizes[key] or redis_call('ZCARD', key)
  return sizes[key]
end
