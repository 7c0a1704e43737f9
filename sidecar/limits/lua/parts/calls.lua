-- @include "limits/parts/algorithms"
-- @include "limits/parts/permits"
-- @include "limits/parts/returned_times"
-- @include "limits/parts/earliest_time"
-- The decision on one call of a key.
local MAX_WAIT
local IS_DRY_RUN -- whether to change nothing
local saved_until

-- Returns the highest cost that a call may have now, and when the whole limit is free again.
local function get_remaining(limit)
  if limit == 0 then return 0, now end
  local at, after, size, ends = algorithm.find(0, limit, base)
  return at <= present and math.max(0, math.floor(size - after)) or 0, ends
end

-- Decides on a call. Returns its time (if refused, when to ask again; 0: never), the highest cost
-- of a call right after it (-1: refused), and when the whole limit is free again.
local function decide(cost, id, limit)
  local permit = id ~= '' and int(cost) .. '~' .. id or nil
  local given_at = find_given_time(permit, id)
  if given_at then
    local left, ends = get_remaining(limit)
    return given_at, given_at <= now and left or 0, ends
  end
  local at, after, size, ends = algorithm.find(cost, limit, base, permit)
  if not at then
    local _, free_again = get_remaining(limit)
    return 0, -1, free_again
  end
  local i, returned_at = find_returned(cost)
  at = returned_at or at
  if at - present > MAX_WAIT then
    local _, free_again = get_remaining(limit)
    return at - MAX_WAIT, -1, free_again
  end
  if IS_DRY_RUN then
    local left, free_again = get_remaining(limit)
    return at <= present and now or at, at <= present and left or 0, free_again
  end
  local left
  if i then
    take_returned(i)
    left, ends = get_remaining(limit)
  else
    algorithm.take(at, after, cost, permit)
    base, saved_until = math.max(base, at), ends
    left = at <= present and math.max(0, math.floor(size - after)) or 0
  end
  if at <= present then at = now end
  store_given_time(permit, id, at)
  return at, left, ends
end
