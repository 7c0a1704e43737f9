-- Decodes the room's settings: those of the settings file, overridden by those of the config hash.
-- A library caches them, and decodes them again if the JSON text of either has changed.
local room, epoch, revision
local session_ms, claim_ms, timeout_ms
-- `lines`: the sub-queues, a list in order of their rank. `classes`: the visitor classes by name.
local lines, classes
-- Whether orders are random, whether sub-queues have weights, and whether positions are shown by
-- arrival (parts/position.lua) instead of by order.
local is_random, is_weighted, is_by_arrival

-- Converts seconds to whole milliseconds.
local function to_ms(seconds)
  return math.floor(seconds * 1000 + 0.5)
end

-- Adds values that are computed from the settings, such as durations in ms. Returns the same table.
local function add_derived_settings(settings)
  settings.session_ms = to_ms(settings.session_duration)
  settings.claim_ms = to_ms(settings.claim_window)
  settings.timeout_ms = to_ms(settings.heartbeat_timeout)
  settings.rejoin_ms = to_ms(settings.rejoin_window or 600)
  -- After this time a recovery is over in any case: every visitor polls at least twice within
  -- heartbeat_timeout.
  settings.recovery_over_ms = to_ms(math.max(600, settings.recovery_window or 0,
    1.1 * settings.heartbeat_timeout + 10))
  settings.lines, settings.classes = settings.lines or {}, settings.classes or {}
  settings.is_random = settings.queueing_method == 'random'
  settings.is_weighted = #settings.lines > 0 and settings.lines[1].weight ~= nil
  settings.is_by_arrival = next(settings.classes) ~= nil and settings.display ~= 'order'
    and not settings.is_random
  settings.is_plain = #settings.lines == 0 and not settings.is_by_arrival
  return settings
end

-- Decodes the settings file's settings (`text`, JSON), and overrides them with the values in
-- `overrides`, a flat list of names and JSON values. Returns the settings.
local function decode_settings(text, overrides)
  local settings = cjson.decode(text)
  settings.epoch, settings.revision = 0, 0
  for i = 1, #overrides, 2 do
    local name, value = overrides[i], cjson.decode(overrides[i + 1])
    if value == cjson.null then value = nil end
    settings[name] = value
  end
  return add_derived_settings(settings)
end

-- The cached settings of each room, by the text of the settings file's settings, because replicas
-- may have different files for a while. At most 500 are cached.
local settings_cache, cached_number = {}, 0
local function load_settings(text)
  local overrides = redis_call('HGETALL', CONFIG)
  local overrides_text = table.concat(overrides, '\n')
  local room_cache = settings_cache[CONFIG]
  local entry = room_cache and room_cache[text]
  if entry and entry.overrides_text == overrides_text then return entry.settings end
  local settings = decode_settings(text, overrides)
  if cached_number >= 500 then
    settings_cache, cached_number = {}, 0
  end
  settings_cache[CONFIG] = settings_cache[CONFIG] or {}
  settings_cache[CONFIG][text] = {overrides_text = overrides_text, settings = settings}
  cached_number = cached_number + 1
  return settings
end

local function begin_settings(text)
  room = load_settings(text)
  epoch, revision = room.epoch, room.revision
  session_ms, claim_ms, timeout_ms = room.session_ms, room.claim_ms, room.timeout_ms
  lines, classes = room.lines, room.classes
  is_random, is_weighted, is_by_arrival = room.is_random, room.is_weighted, room.is_by_arrival
end
