-- What every script of limits and of targets starts with. All times are in µs, but for what PEXPIRE
-- takes.
-- KEYS  names and types: limits/redis_keys.py
-- ARGV  1 now, or '' for the store's own time (tests override it)
-- As Redis Functions all of this is loaded once: what a call knows is in locals that begin() and
-- those who follow it set anew.
-- Where the store is full or read-only, the first write of a script fails, and nothing was changed;
-- those that follow never do.
-- Not to be had while a library is loaded: taken by each call.
local redis_call
-- How long a key stays when it has said all, ms: a clock may go back a little.
local STAYS_MS = 9000

-- tostring() would round a number of more than 14 digits. In a batch many are the same.
local texts
local function int(number)
  local text = texts[number]
  if not text then
    text = string.format('%.0f', number)
    texts[number] = text
  end
  return text
end

local now
local function begin(ARGV)
  redis_call, texts = redis.call, {}
  if ARGV[1] == '' then
    local time = redis_call('TIME')
    now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  else
    now = tonumber(ARGV[1])
  end
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
