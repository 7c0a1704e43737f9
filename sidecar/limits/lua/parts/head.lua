-- The start of every script of limits and of targets. Times are in µs, except those of PEXPIRE.
-- KEYS  names and types: limits/redis_keys.py
-- ARGV  1 now, or '' for the store's own time (tests override it)
-- @include "visitors/script"
-- How much longer than needed a key is kept, ms: a clock may go back a little.
local STAYS_MS = 9000

-- Texts of numbers, because many in a batch are the same.
local texts
local write_int = int
local function int(number)
  local text = texts[number]
  if not text then
    text = write_int(number)
    texts[number] = text
  end
  return text
end

local now
local function begin(ARGV)
  redis_call, texts = redis.call, {}
  now = tonumber(ARGV[1]) or queue.time_us()
end

-- Returns the time until `ends`, ms, rounded up to quarters of a second.
local function life_ms(ends)
  return math.ceil(math.max(0, ends - now) / 250000) * 250 + STAYS_MS
end

-- Keeps a key at least until `ends`; never shortens its life.
local function keep(key, ends)
  local ms = life_ms(ends)
  if tonumber(redis_call('PTTL', key)) < ms then redis_call('PEXPIRE', key, int(ms)) end
end
