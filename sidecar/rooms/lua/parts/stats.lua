-- @include "rooms/parts/numbers"
-- Counters and events. Counters are collected while the script runs, and written by finish().
local counted

local function begin_stats()
  counted = {}
  begin_numbers()
end

local function count(name, by)
  counted[name] = (counted[name] or 0) + (by or 1)
end

local function append(kind, visitor, why, ...)
  redis_call('XADD', EVENTS, 'MAXLEN', '~', room.events_kept, '*',
    'kind', kind, 'visitor', visitor, 'why', why, 'at', int(now), ...)
end

-- Adds an event to the stream and counts it. kind: joined, called, admitted, expired, left or
-- released; why: the cause; then names and values for the history. Expired and left are also
-- counted by cause.
local function event(kind, visitor, why, ...)
  count(kind)
  if kind == 'expired' or kind == 'left' then count(kind .. '_' .. why) end
  append(kind, visitor, why, ...)
end

-- Logs an operator's action for the history and the dashboard; does nothing if `by` is ''.
-- `cache.changes`: the old and new values of settings by name, as JSON ('': the configured value).
-- With these values and the revision an operator can undo the change.
local function log_action(by, what, visitor, detail, ...)
  if by == '' then return end
  append('operator', visitor, what, 'by', by, 'detail', detail, ...)
  redis_call('LPUSH', LOG, cjson.encode({at = now, by = by, what = what, visitor = visitor,
    detail = detail, changes = cache.changes, revision = cache.changes and revision}))
  redis_call('LTRIM', LOG, 0, 199) -- keeps the last 200 actions
end

-- Counts the wait of an admitted visitor in a histogram with half octaves of seconds, from which
-- rooms/statistics.py computes percentiles for any period.
local function count_wait(ms)
  count('wait_' .. math.floor(2 * math.log(math.max(1, ms / 1000)) / math.log(2)))
end

-- @include "rooms/parts/lost_keys"
local function finish()
  flush()
  store_key_count()
  save()
  cache_numbers()
  for name, by in pairs(counted) do
    redis_call('HINCRBY', STATS, name, by)
  end
end
