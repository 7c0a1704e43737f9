-- What every script of limits and of targets starts with. All times are in µs, but for what PEXPIRE
-- takes.
-- KEYS  names and types: limits/redis_keys.py
-- ARGV  1 now, or '' for the store's own time (tests override it)
-- @include "visitors/script"
-- How long a key stays when it has said all, ms: a clock may go back a little.
local STAYS_MS = 9000

-- Of the numbers in a batch many are the same.
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

-- Until `ends`, ms from now, in quarters of a second.
local function life_ms(ends)
  return math.ceil(math.max(0, ends - now) / 250000) * 250 + STAYS_MS
end

-- Nothing in this key is needed after `ends`, but perhaps something else that is in it already.
local function keep(key, ends)
  local ms = life_ms(ends)
  if tonumber(redis_call('PTTL', key)) < ms then redis_call('PEXPIRE', key, int(ms)) end
end
