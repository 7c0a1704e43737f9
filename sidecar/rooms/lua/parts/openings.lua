-- Finds the room's phase from its scheduled events. Replicas use the same rule (rooms/openings.py).
-- OPEN: visitors join and are called as usual. CLOSED: nobody joins, and nobody is called.
-- PREQUEUE: visitors join, and their places are drawn; nobody is called or told a position.
local CLOSED, OPEN, PREQUEUE = 0, 1, 2
local phase
-- The latest event that has begun, and the time, in ms, from which visitors could join it; nil and
-- -math.huge if none has begun.
local current_event, event_begins
-- The current total_active_users and new_users_per_minute, which an event may override. The cap is
-- lower while the site can serve only fewer visitors (rooms/adaptive/).
local cap, per_minute
-- Whether nobody is called, because an operator has paused the room or the room is held.
local is_held
-- How long after a hold visitors are admitted gradually, and which share of the cap is then
-- admitted per minute at most.
local RESUME_MS, RESUME_SHARE = 120000, 0.5

local function begin_phase()
  phase, current_event, event_begins = OPEN, nil, -math.huge
  cap, per_minute = room.total_active_users, room.new_users_per_minute
  local events = room.events
  if not events or #events == 0 then return end
  for _, candidate in ipairs(events) do
    local begins = candidate.prequeue_from or candidate.opens_at
    if begins <= now and begins > event_begins then
      current_event, event_begins = candidate, begins
    end
  end
  if current_event and now < current_event.opens_at then
    phase = PREQUEUE
  elseif current_event and now < (current_event.closes_at or math.huge) then
    cap = current_event.total_active_users or cap
    per_minute = current_event.new_users_per_minute or per_minute
  elseif room.between_events ~= 'open' then
    phase = CLOSED
  end
end

local function begin_events()
  begin_phase()
  local adaptive, held_until = room.adaptive, room.hold and room.hold['until'] or -math.huge
  if adaptive and adaptive.mode == 'on' then
    -- By the same rule as AdaptiveSettings.lower_cap(). There is no ceiling if Redis was emptied or
    -- nothing was measured.
    local ceiling = room.learned and tonumber(room.learned.ceiling)
    cap = math.min(cap, ceiling and math.floor(ceiling) or adaptive.min)
  end
  is_held = room.queue_all or now < held_until
  if now < held_until + RESUME_MS then
    per_minute = math.min(per_minute or math.huge, math.max(1, RESUME_SHARE * cap))
  end
end
