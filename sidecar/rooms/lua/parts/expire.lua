-- @include "rooms/parts/measure"
-- @include "rooms/parts/admit"
-- Ends sessions that are over.
local expire
do
-- Visitors who were called and could not arrive during an outage have until `back_until`.
local RETURNING = 1000
local function keep_called(names)
  local kept = {}
  if #names == 0 then return kept end
  for i, started in ipairs(redis_call('ZMSCORE', ADMITTED, unpack(names))) do
    if not started then
      kept[names[i]] = true
      put(ACTIVE, int(back_until), names[i])
    end
  end
  flush()
  return kept
end

-- Returns whether slots are wanted: somebody waits, or nine of ten slots are taken.
local function are_wanted()
  return redis_call('EXISTS', DUE) == 1 or 10 * size(ACTIVE) >= 9 * cap
end

-- Drops sessions that expired: full ones, provisional ones whose visitor did not arrive, and unused
-- ones where slots are wanted. After an outage pages first have time to ask. Returns how many.
function expire()
  flush()
  if has_just_returned then -- sessions that end soon; those that are over follow below
    keep_called(redis_call('ZRANGEBYSCORE', ACTIVE, '(' .. int(now), int(back_until),
      'LIMIT', 0, RETURNING))
  end
  local ended, ends = queue.members_until(now, ACTIVE, BOUND)
  if #ended == 0 then return 0 end
  local over = {}
  for i, visitor in ipairs(ended) do
    ends[i] = tonumber(ends[i])
    if ends[i] <= back and now < back_until then over[#over + 1] = visitor end
  end
  local kept, overdue_ms, visitors = keep_called(over), 0, {}
  local admitted = queue.scores_of(ADMITTED, ended)
  local spares = now < back_until or not are_wanted()
  local why = {}
  for i, visitor in ipairs(ended) do
    local started, unused = admitted[i], is_unused(ends[i])
    if started and unused and spares and unused_until(started + 0) > now then
      admit_unused(visitor, started + 0)
    elseif not kept[visitor] then
      visitors[#visitors + 1] = visitor
      why[#visitors] = unused and 'unused' or started and 'session' or 'no_show'
      overdue_ms = overdue_ms + now - ends[i]
    end
  end
  flush()
  if #visitors == 0 or now < back + TELLING_MS then return 0 end
  local revoked = redis_call('ZMSCORE', REVOKED, unpack(visitors))
  redis_call('ZREM', ACTIVE, unpack(visitors))
  resized(ACTIVE)
  redis_call('ZREM', ADMITTED, unpack(visitors))
  for i, visitor in ipairs(visitors) do
    if why[i] ~= 'session' or not revoked[i] then event('expired', visitor, why[i]) end
  end
  measure_ends(#visitors, overdue_ms)
  return #visitors
end
end
