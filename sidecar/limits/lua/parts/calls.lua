-- @include "limits/parts/algorithms"
-- @include "limits/parts/idempotency"
-- @include "limits/parts/returned_times"
-- @include "limits/parts/earliest_time"
-- Decides on one call of a rate-limited key.
local MAX_WAIT -- the longest wait of a paced call, µs
local IS_DRY_RUN -- whether to change nothing in Redis
local saved_until -- until when the state is needed, µs; nil if it has not changed

-- Returns the highest cost that a call may have now, and when the whole limit is available.
local function get_remaining(limit)
  if limit == 0 then return 0, now end
  local at, after, size, ends = algorithm.find(0, limit, base)
  return at <= present and math.max(0, math.floor(size - after)) or 0, ends
end

-- Decides on a call. Returns:
--   when the call may proceed or, if it is refused, when to retry (0: never)
--   the highest cost that a call right after this call may have (-1: this call is refused)
--   when the whole limit is available
local function decide(cost, id, limit)
  local permit = id ~= '' and int(cost) .. '~' .. id or nil
  local stored_at = find_stored_time(permit, id)
  if stored_at then
    local left, ends = get_remaining(limit)
    return stored_at, stored_at <= now and left or 0, ends
  end
  local at, after, size, ends = algorithm.find(cost, limit, base, permit)
  if not at then
    local _, available_at = get_remaining(limit)
    return 0, -1, available_at
  end
  local index, returned_at = find_returned_time(cost)
  at = returned_at or at
  if at - present > MAX_WAIT then
    local _, available_at = get_remaining(limit)
    return at - MAX_WAIT, -1, available_at
  end
  if IS_DRY_RUN then
    local left, available_at = get_remaining(limit)
    return at <= present and now or at, at <= present and left or 0, available_at
  end
  local left
  if index then
    take_returned_time(index)
    left, ends = get_remaining(limit)
  else
    algorithm.take(at, after, cost, permit)
    base, saved_until = math.max(base, at), ends
    left = at <= present and math.max(0, math.floor(size - after)) or 0
  end
  if at <= present then at = now end
  store_time(permit, id, at)
  return at, left, ends
end
