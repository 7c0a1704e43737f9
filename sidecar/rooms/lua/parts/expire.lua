-- @include "rooms/parts/measure"
-- Who was called and could not come, for nobody was there to hear them, has until `back_until`.
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

-- Drops sessions that ran out: full ones, and provisional ones that nobody claimed.
-- Returns how many.
local function expire()
  flush()
  if has_just_returned then -- those whose time is short now; whose time is over, below
    keep_called(redis_call('ZRANGEBYSCORE', ACTIVE, '(' .. int(now), int(back_until),
      'LIMIT', 0, RETURNING))
  end
  local ended, ends = queue.over_by(now, ACTIVE, BOUND)
  if #ended == 0 then return 0 end
  local over = {}
  for i, visitor in ipairs(ended) do
    if tonumber(ends[i]) <= back and now < back_until then over[#over + 1] = visitor end
  end
  local kept, overdue_ms, visitors = keep_called(over), 0, {}
  for i, visitor in ipairs(ended) do
    if not kept[visitor] then
      visitors[#visitors + 1] = visitor
      overdue_ms = overdue_ms + now - tonumber(ends[i])
    end
  end
  if #visitors == 0 or now < back + TELLING_MS then return 0 end
  local admitted = redis_call('ZMSCORE', ADMITTED, unpack(visitors))
  local revoked = redis_call('ZMSCORE', REVOKED, unpack(visitors))
  redis_call('ZREM', ACTIVE, unpack(visitors))
  resized(ACTIVE)
  redis_call('ZREM', ADMITTED, unpack(visitors))
  for i, visitor in ipairs(visitors) do
    if not admitted[i] then
      event('expired', visitor, 'no_show')
    elseif not revoked[i] then
      event('expired', visitor, 'session')
    end
  end
  measure_ends(#visitors, overdue_ms)
  return #visitors
end
