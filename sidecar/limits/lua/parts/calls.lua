-- @include "limits/parts/algorithms"
-- @include "limits/parts/permits"
-- @include "limits/parts/present"
-- The decision on one call of a key.
local MAX_WAIT, LOOKS
local saved_until

local function standing(limit)
  if limit == 0 then return 0, now end
  local at, after, size, ends = algorithm.find(0, limit, base)
  return at <= present and math.max(0, math.floor(size - after)) or 0, ends
end

local function answer(cost, id, limit)
  local permit = id ~= '' and int(cost) .. '~' .. id or nil
  local known = recall(permit, id)
  if known then
    local left, ends = standing(limit)
    return known, known <= now and left or 0, ends
  end
  local at, after, size, ends = algorithm.find(cost, limit, base, permit)
  if not at then
    local _, free_again = standing(limit)
    return 0, -1, free_again
  end
  local i, moment = freed_for(cost)
  at = moment or at
  if at - present > MAX_WAIT then
    local _, free_again = standing(limit)
    return at - MAX_WAIT, -1, free_again
  end
  if LOOKS then
    local left, free_again = standing(limit)
    return at <= present and now or at, at <= present and left or 0, free_again
  end
  local left
  if i then
    take_freed(i)
    left, ends = standing(limit)
  else
    algorithm.take(at, after, cost, permit)
    base, saved_until = math.max(base, at), ends
    left = at <= present and math.max(0, math.floor(size - after)) or 0
  end
  if at <= present then at = now end
  remember(permit, id, at)
  return at, left, ends
end
