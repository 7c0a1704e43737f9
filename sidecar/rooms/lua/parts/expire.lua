-- @include "rooms/parts/measure"
-- @include "rooms/parts/unused_session"
-- Ends expired sessions.
local expire
do
-- Extends to `back_until` the slots of called visitors who have not arrived, because they could not
-- arrive during the outage. Returns a set of these visitors. MAX_EXTENDED: how many slots the first
-- script after an outage extends at most.
local MAX_EXTENDED = 1000
local function extend_called(names)
  local extended = {}
  if #names == 0 then return extended end
  for i, started in ipairs(redis_call('ZMSCORE', ADMITTED, unpack(names))) do
    if not started then
      extended[names[i]] = true
      put(ACTIVE, int(back_until), names[i])
    end
  end
  flush()
  return extended
end

-- Ends expired sessions: full ones, provisional ones whose visitor did not arrive, and unused ones
-- if slots are scarce. After an outage, called visitors and unused sessions first get time until
-- `back_until`. Returns how many sessions ended.
function expire()
  flush()
  if has_outage_ended then -- slots that end before back_until; those that ended follow below
    extend_called(redis_call('ZRANGEBYSCORE', ACTIVE, '(' .. int(now), int(back_until),
      'LIMIT', 0, MAX_EXTENDED))
  end
  local ended, ends = queue.members_until(now, ACTIVE, LOOP_LIMIT)
  if #ended == 0 then return 0 end
  local over = {}
  for i, visitor in ipairs(ended) do
    ends[i] = tonumber(ends[i])
    if ends[i] <= back and now < back_until then over[#over + 1] = visitor end
  end
  local extended, overdue_ms, visitors = extend_called(over), 0, {}
  local admitted = queue.scores_of(ADMITTED, ended)
  local spares_unused = now < back_until or not are_slots_scarce()
  local why = {}
  for i, visitor in ipairs(ended) do
    local started, unused = admitted[i], is_unused(ends[i])
    if started and unused and spares_unused and unused_until(started + 0) > now then
      admit_unused(visitor, started + 0)
    elseif not extended[visitor] then
      visitors[#visitors + 1] = visitor
      why[#visitors] = unused and 'unused' or started and 'session' or 'no_show'
      overdue_ms = overdue_ms + now - ends[i]
    end
  end
  flush()
  if #visitors == 0 or now < back + REPORT_MS then return 0 end
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
