-- @include "rooms/parts/measure"
-- @include "rooms/parts/unused_session"
-- Ends expired sessions.
local expire
do
-- The maximum number of slots that the first script after an outage extends.
local MAX_EXTENDED_SLOTS = 1000
-- Extends the slots of those visitors who were called and have not arrived to `spared_until`,
-- because they could not arrive during the outage. Returns the set of these visitors.
local function extend_called_slots(visitors)
  local called = {}
  if #visitors == 0 then return called end
  for i, started in ipairs(redis_call('ZMSCORE', ADMITTED, unpack(visitors))) do
    if not started then
      called[visitors[i]] = true
      put(ACTIVE, int(spared_until), visitors[i])
    end
  end
  flush()
  return called
end

-- Ends expired sessions: full sessions, provisional sessions whose visitors did not arrive, and, if
-- slots are scarce, unused sessions. After an outage, provisional and unused sessions do not end
-- before `spared_until`. Returns how many sessions ended.
function expire()
  flush()
  if has_outage_just_ended then -- extends slots that end soon; slots that have ended follow below
    extend_called_slots(redis_call('ZRANGEBYSCORE', ACTIVE, '(' .. int(now), int(spared_until),
      'LIMIT', 0, MAX_EXTENDED_SLOTS))
  end
  local ended, ends = queue.members_until(now, ACTIVE, LOOP_LIMIT)
  if #ended == 0 then return 0 end
  local ended_in_outage = {}
  for i, visitor in ipairs(ended) do
    ends[i] = tonumber(ends[i])
    if ends[i] <= outage_end and now < spared_until then
      ended_in_outage[#ended_in_outage + 1] = visitor
    end
  end
  local extended, overdue_ms, visitors = extend_called_slots(ended_in_outage), 0, {}
  local admitted = queue.scores_of(ADMITTED, ended)
  local spares_unused = now < spared_until or not are_slots_scarce()
  local why = {}
  for i, visitor in ipairs(ended) do
    local started, unused = admitted[i], is_unused(ends[i])
    if started and unused and spares_unused and get_unused_end(started + 0) > now then
      admit_unused(visitor, started + 0)
    elseif not extended[visitor] then
      visitors[#visitors + 1] = visitor
      why[#visitors] = unused and 'unused' or started and 'session' or 'no_show'
      overdue_ms = overdue_ms + now - ends[i]
    end
  end
  flush()
  if #visitors == 0 or now < outage_end + REPORT_MS then return 0 end
  local revoked = redis_call('ZMSCORE', REVOKED, unpack(visitors))
  redis_call('ZREM', ACTIVE, unpack(visitors))
  forget_size(ACTIVE)
  redis_call('ZREM', ADMITTED, unpack(visitors))
  for i, visitor in ipairs(visitors) do
    if why[i] ~= 'session' or not revoked[i] then event('expired', visitor, why[i]) end
  end
  measure_ended_sessions(#visitors, overdue_ms)
  return #visitors
end
end
