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

-- kind: joined called admitted expired left released; why: how it came about; then names and
-- values of what the history wants to know. Each kind is counted, and each way a stay can end.
local function event(kind, visitor, why, ...)
  count(kind)
  if kind == 'expired' or kind == 'left' then count(kind .. '_' .. why) end
  append(kind, visitor, why, ...)
end

-- What an operator did: for the history, and the latest for the dashboard. `by` is '' for what
-- no operator did, which is not noted. `found.changes`: by name what a setting was and is, as JSON,
-- each '' where it is as configured; with the revision, by which it can be undone.
local LOG_KEPT = 200
local function note(by, what, visitor, detail, ...)
  if by == '' then return end
  append('operator', visitor, what, 'by', by, 'detail', detail, ...)
  redis_call('LPUSH', LOG, cjson.encode({at = now, by = by, what = what, visitor = visitor,
    detail = detail, changes = found.changes, revision = found.changes and revision}))
  redis_call('LTRIM', LOG, 0, LOG_KEPT - 1)
end

-- How long those waited who were let in: counted by half octaves of seconds, so that any stretch
-- of time has its percentiles (rooms/statistics.py reads them).
local function count_wait(ms)
  count('wait_' .. math.floor(2 * math.log(math.max(1, ms / 1000)) / math.log(2)))
end

-- @include "rooms/parts/lost_keys"
local function finish()
  flush()
  keep_keys()
  save()
  keep_numbers()
  for name, by in pairs(counted) do
    redis_call('HINCRBY', STATS, name, by)
  end
end
