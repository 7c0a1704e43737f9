-- What the room does now, by its events. Replicas know it by the same rule (rooms/openings.py).
-- OPEN: as ever. CLOSED: nobody takes a place, nobody is called. PREQUEUE: places are taken and
-- drawn, nobody is called, nobody learns where they stand.
local CLOSED, OPEN, PREQUEUE = 0, 1, 2
local phase
-- The event that began last, from when on places are taken (ms).
local event_on, event_begins
-- total_active_users and new_users_per_minute, which an event may change.
local cap, per_minute

local function begin_events()
  phase, event_on, event_begins = OPEN, nil, -math.huge
  cap, per_minute = room.total_active_users, room.new_users_per_minute
  local events = room.events
  if not events or #events == 0 then return end
  for _, one in ipairs(events) do
    local begins = one.prequeue_from or one.opens_at
    if begins <= now and begins > event_begins then
      event_on, event_begins = one, begins
    end
  end
  if event_on and now < event_on.opens_at then
    phase = PREQUEUE
  elseif event_on and now < (event_on.closes_at or math.huge) then
    cap = event_on.total_active_users or cap
    per_minute = event_on.new_users_per_minute or per_minute
  elseif room.between_events ~= 'open' then
    phase = CLOSED
  end
end
