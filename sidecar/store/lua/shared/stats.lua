-- Counters and events: collected while the script runs, written once by finish().
local NUMBERS = {'last_order', 'tokens', 'tokens_at', 'measured_at', 'ends', 'held_ms',
  'drops', 'waited_ms', 'born', 'recovery', 'address_at'}
local stats = {}
-- Before anything is changed: where the store refuses to be written (full, read-only), that
-- is found out here, and nobody is taken out of the line for nothing.
redis_call('HSETNX', STATS, 'born', int(now))
local loaded = redis_call('HMGET', STATS, unpack(NUMBERS))
for i, name in ipairs(NUMBERS) do
  stats[name] = tonumber(loaded[i] or nil)
end

local counted = {}
local function count(name, by)
  counted[name] = (counted[name] or 0) + (by or 1)
end

-- kind: joined called admitted expired left released; why: how it came about. Each kind is
-- counted, and each way a stay can end by itself.
local at = int(now)
local function event(kind, visitor, why)
  count(kind)
  if kind == 'expired' then count('expired_' .. why) end
  redis_call('XADD', EVENTS, 'MAXLEN', '~', EVENTS_KEPT, '*',
    'kind', kind, 'visitor', visitor, 'why', why, 'at', at)
end

local function finish()
  flush()
  local fields = {}
  for _, name in ipairs(NUMBERS) do
    if stats[name] then
      fields[#fields + 1] = name
      fields[#fields + 1] = string.format('%.17g', stats[name])
    end
  end
  if #fields > 0 then redis_call('HSET', STATS, unpack(fields)) end
  for name, by in pairs(counted) do
    redis_call('HINCRBY', STATS, name, by)
  end
end
