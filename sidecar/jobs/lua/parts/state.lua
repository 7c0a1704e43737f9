-- @include "jobs/parts/head"
-- @include "visitors/arrival"
-- @include "visitors/numbers"
-- The numbers of the target, which finish_state() writes.
local NUMBERS = {
  'ready', -- from when on calls are made, µs; missing: the store is new, or was emptied
  'last_order', 'last_fence',
  'failures', -- in a row
  'opened', -- how often in a row the breaker opened; 0: it is closed
  'open_until', 'held_until', -- µs
  'mean_us', -- how long a successful call takes, smoothed
  'runner', -- when a worker last asked for offline jobs, µs, to the second
  'called', 'completed', 'failed', 'retried', 'lost', 'expired', -- counted since the store is new
}
local loaded, target
-- The longest that anything is put off, although a clock may jump back.
local MOST_US = {open_until = 60000000, held_until = 3600000000, ready = 86400000000}

local function begin_state(KEYS, ARGV)
  begin_target(KEYS, ARGV)
  loaded, target = queue.load_numbers(STATE, NUMBERS)
  for name, most in pairs(MOST_US) do
    if target[name] then target[name] = math.min(target[name], now + most) end
  end
end

local function count(name, by)
  target[name] = (target[name] or 0) + (by or 1)
end

local function finish_state()
  queue.write_all('HSET', STATE, queue.changed_numbers(NUMBERS, loaded, target))
end

-- Returns the number of a new lock or permit; these only grow.
local function next_fence()
  target.last_fence = queue.next_number(target.last_fence, now)
  return target.last_fence
end
