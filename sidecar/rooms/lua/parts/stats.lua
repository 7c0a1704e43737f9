-- @include "rooms/parts/numbers"
-- Counts and logs what happens in a room. finish() writes the counters at the end of the script.
local counted -- how much to add to each counter, by name

local function begin_stats()
  counted = {}
  begin_numbers()
end

local function count(name, number)
  counted[name] = (counted[name] or 0) + (number or 1)
end

local function append_event(kind, visitor, cause, ...)
  redis_call('XADD', EVENTS, 'MAXLEN', '~', room.events_kept, '*',
    'kind', kind, 'visitor', visitor, 'why', cause, 'at', int(now), ...)
end

-- Adds an event to the stream, and counts it. `kind`: joined, called, admitted, expired, left,
-- released or graded. Further arguments are names and values for the history. Events of the kinds
-- `expired` and `left` are also counted by their causes.
local function event(kind, visitor, cause, ...)
  count(kind)
  if kind == 'expired' or kind == 'left' then count(kind .. '_' .. cause) end
  append_event(kind, visitor, cause, ...)
end

-- Logs an operator's action for the history and the dashboard. Does nothing if `operator` is ''.
-- `cache.changes` has {old value, new value} of each changed setting by name, as JSON ('': the
-- value of the settings file). With these values and the revision an operator can undo the change.
local function log_action(operator, action, visitor, detail, ...)
  if operator == '' then return end
  append_event('operator', visitor, action, 'by', operator, 'detail', detail, ...)
  redis_call('LPUSH', LOG, cjson.encode({at = now, by = operator, what = action, visitor = visitor,
    detail = detail, changes = cache.changes, revision = cache.changes and revision}))
  redis_call('LTRIM', LOG, 0, 199) -- keeps the last 200 actions
end

-- Counts the wait of an admitted visitor in a histogram, from which rooms/statistics.py computes
-- percentiles for any period. Each bucket is wider than the one before by a factor of sqrt(2).
local function count_wait(ms)
  count('wait_' .. math.floor(2 * math.log(math.max(1, ms / 1000)) / math.log(2)))
end

-- @include "rooms/parts/lost_keys"
-- Ends the script: writes pending members, numbers and counters.
local function finish()
  flush()
  store_key_count()
  save_numbers()
  cache_numbers()
  for name, number in pairs(counted) do
    redis_call('HINCRBY', STATS, name, number)
  end
end
