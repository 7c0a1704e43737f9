-- Begins each script of limits and of jobs' targets. Times are in µs, except for PEXPIRE.
-- KEYS  limits/redis_keys.py describes them
-- ARGV  1 now, or '' for Redis' own time (tests override it)
-- @include "visitors/script"
-- How much longer than needed a key lives, ms, because a clock may go back a little.
local EXTRA_LIFE_MS = 9000

-- A cache of numbers as strings, because a batch repeats many of them.
local strings
local write_int = int
local function int(number)
  local text = strings[number]
  if not text then
    text = write_int(number)
    strings[number] = text
  end
  return text
end

local now
local function begin(ARGV)
  redis_call, strings = redis.call, {}
  now = tonumber(ARGV[1]) or queue.time_us()
end

-- Returns how long a key that is needed until `ends` must live, ms, in steps of 250 ms.
local function get_life_ms(ends)
  return math.ceil(math.max(0, ends - now) / 250000) * 250 + EXTRA_LIFE_MS
end

-- Extends a key's expiry to `ends`. Never shortens it.
local function extend_expiry(key, ends)
  local ms = get_life_ms(ends)
  if tonumber(redis_call('PTTL', key)) < ms then redis_call('PEXPIRE', key, int(ms)) end
end
