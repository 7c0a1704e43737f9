-- The room's settings: those of the file, overridden by those of the config hash. A library caches
-- the decoded settings, and decodes again if the text of either has changed.
local room, epoch, revision
local session_ms, claim_ms, timeout_ms
local lines, classes
-- Whether the order is random; whether sub-queues have weights; whether positions are shown by
-- arrival (`arrivals`) instead of by order.
local is_random, is_weighted, is_by_arrival

local function whole_ms(seconds)
  return math.floor(seconds * 1000 + 0.5)
end

-- Adds the values that are derived from the settings.
local function derive(settings)
  settings.session_ms = whole_ms(settings.session_duration)
  settings.claim_ms = whole_ms(settings.claim_window)
  settings.timeout_ms = whole_ms(settings.heartbeat_timeout)
  settings.rejoin_ms = whole_ms(settings.rejoin_window or 600)
  -- After this time a recovery is over in any case, because every visitor polls at least twice
  -- within heartbeat_timeout.
  settings.recovery_over_ms = whole_ms(math.max(600, settings.recovery_window or 0,
    1.1 * settings.heartbeat_timeout + 10))
  settings.lines, settings.classes = settings.lines or {}, settings.classes or {}
  settings.is_random = settings.queueing_method == 'random'
  settings.is_weighted = #settings.lines > 0 and settings.lines[1].weight ~= nil
  settings.is_by_arrival = next(settings.classes) ~= nil and settings.display ~= 'order'
    and not settings.is_random
  settings.is_plain = #settings.lines == 0 and not settings.is_by_arrival
  return settings
end

local function decode(text, overrides)
  local settings = cjson.decode(text)
  settings.epoch, settings.revision = 0, 0
  for i = 1, #overrides, 2 do
    local name, value = overrides[i], cjson.decode(overrides[i + 1])
    if value == cjson.null then value = nil end
    settings[name] = value
  end
  return derive(settings)
end

-- Cached settings of each room, by the text of the file's settings, because replicas may have
-- different files for a while. At most 500 of them are cached.
local decoded, decoded_number = {}, 0
local function settings_of(text)
  local overrides = redis_call('HGETALL', CONFIG)
  local overrides_text = table.concat(overrides, '\n')
  local of_room = decoded[CONFIG]
  local cached = of_room and of_room[text]
  if cached and cached.overrides_text == overrides_text then return cached.settings end
  local settings = decode(text, overrides)
  if decoded_number >= 500 then
    decoded, decoded_number = {}, 0
  end
  decoded[CONFIG] = decoded[CONFIG] or {}
  decoded[CONFIG][text] = {overrides_text = overrides_text, settings = settings}
  decoded_number = decoded_number + 1
  return settings
end

local function begin_settings(text)
  room = settings_of(text)
  epoch, revision = room.epoch, room.revision
  session_ms, claim_ms, timeout_ms = room.session_ms, room.claim_ms, room.timeout_ms
  lines, classes = room.lines, room.classes
  is_random, is_weighted, is_by_arrival = room.is_random, room.is_weighted, room.is_by_arrival
end
