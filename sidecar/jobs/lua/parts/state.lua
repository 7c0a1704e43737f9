-- @include "jobs/parts/head"
-- What is remembered of the target itself, as numbers; written by finish_state().
local NUMBERS = {
  'ready', -- from when on calls are made, µs; missing: the store is new, or was emptied
  'last_order', 'last_fence',
  'failures', -- in a row
  'opened', -- how often in a row the breaker opened; 0: it is closed
  'open_until', 'held_until', -- µs
  'mean_us', -- how long a successful call takes: the last ones count most
  'runner', -- when one last asked for offline jobs, µs, to the second
  'called', 'completed', 'failed', 'retried', 'lost', 'expired', -- counted since the store is new
}
local loaded, target
-- A clock may jump back, and nothing is put off for longer than this.
local MOST_US = {open_until = 60000000, held_until = 3600000000, ready = 86400000000}

local function begin_state(KEYS, ARGV)
  begin_target(KEYS, ARGV)
  loaded, target = redis_call('HMGET', STATE, unpack(NUMBERS)), {}
  for i, name in ipairs(NUMBERS) do
    loaded[i] = tonumber(loaded[i] or nil)
    target[name] = loaded[i]
  end
  for name, most in pairs(MOST_US) do
    if target[name] then target[name] = math.min(target[name], now + most) end
  end
end

local function count(name, by)
  target[name] = (target[name] or 0) + (by or 1)
end

local function finish_state()
  local fields = {}
  for i, name in ipairs(NUMBERS) do
    if target[name] ~= loaded[i] then
      fields[#fields + 1], fields[#fields + 2] = name, string.format('%.17g', target[name])
    end
  end
  write_all('HSET', STATE, fields)
end

-- Numbers of locks and permits, which only grow.
local function next_fence()
  target.last_fence = math.max(now, (target.last_fence or 0) + 1)
  return target.last_fence
end
