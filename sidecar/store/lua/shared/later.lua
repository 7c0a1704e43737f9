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
  if not next(pending) then return end
  local waiting, due = pending[WAITING], pending[DUE]
  local active, admitted, spent = pending[ACTIVE], pending[ADMITTED], pending[SPENT]
  pending = {}
  if waiting then redis_call('ZADD', WAITING, unpack(waiting)) end
  if due then redis_call('ZADD', DUE, unpack(due)) end
  if active then redis_call('ZADD', ACTIVE, unpack(active)) end
  if admitted then redis_call('ZADD', ADMITTED, unpack(admitted)) end
  if spent then redis_call('ZADD', SPENT, unpack(spent)) end
end

-- Every `step`th argument from the third on, or from another: the visitors of a batch.
local function batch(step, from)
  local visitors = {}
  for i = from or 3, #ARGV, step do
    visitors[#visitors + 1] = ARGV[i]
  end
  return visitors
end
