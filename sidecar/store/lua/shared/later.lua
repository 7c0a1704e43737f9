-- Members to add to sorted sets, collected while a script runs: one ZADD for many costs
-- about half of many. Whoever reads a set in between flushes first; finish() does.
local pending = {}
local function put(key, score, member)
  local add = pending[key]
  if not add then
    add = {}
    pending[key] = add
  end
  add[#add + 1] = score
  add[#add + 1] = member
end

local function flush()
  for key, members in pairs(pending) do
    redis_call('ZADD', key, unpack(members))
  end
  pending = {}
end

-- Every `step`th argument from the third on: the visitors of a batch.
local function batch(step)
  local visitors = {}
  for i = 3, #ARGV, step do
    visitors[#visitors + 1] = ARGV[i]
  end
  return visitors
end
