-- @include "leases/parts/template"
-- What the template remembers over all its resources; written by finish_state().
--   born     when the first script ran in this store, ms
--   last     the last fencing number or order, µs
--   recovers until when nothing is granted, because the store was emptied, ms
--   ends, held_ms  how many leases ended (20 at most), how long one is held: what is older fades
local NUMBERS = {'born', 'last', 'recovers', 'ends', 'held_ms'}
-- Before anything is changed: where the store refuses to be written (full, read-only), that
-- is found out here.
redis_call('HSETNX', STATE, 'born', int(now))
local loaded, state = redis_call('HMGET', STATE, unpack(NUMBERS)), {}
for i, name in ipairs(NUMBERS) do
  state[name] = tonumber(loaded[i] or nil)
end

-- A store is emptied if somebody knows the template from before it was made: whoever held a
-- lease then may hold it still, so nothing is granted until every such term is over.
state.born = math.min(state.born, now) -- a clock may jump back
if (tonumber(ARGV[3]) or state.born) < state.born then
  state.recovers = state.born + term_ms
end
if state.recovers then state.recovers = math.min(state.recovers, now + term_ms) end
local recovers_until = state.recovers or 0

local function is_recovering()
  return now < recovers_until
end

-- Orders and fencing numbers are of one row, so that both only grow, whatever the clock does. The
-- replica may know of one that was lost when another server became the store.
if ARGV[4] ~= '' then state.last = math.max(state.last or 0, tonumber(ARGV[4])) end
local function next_number()
  state.last = math.max(now_us, (state.last or 0) + 1)
  return state.last
end

-- An order or a fencing number of the store that was emptied; what it gave stays in order.
local function is_of_before(number)
  return number > 0 and number < state.born * 1000
end

local function measure_end(held_ms)
  state.ends = math.min((state.ends or 0) + 1, 20)
  state.held_ms = state.held_ms or 0
  state.held_ms = state.held_ms + (math.max(0, held_ms) - state.held_ms) / state.ends
end

local function finish_state()
  local fields = {}
  for i, name in ipairs(NUMBERS) do
    if state[name] ~= tonumber(loaded[i] or nil) then
      fields[#fields + 1] = name
      fields[#fields + 1] = string.format('%.17g', state[name])
    end
  end
  if #fields > 0 then redis_call('HSET', STATE, unpack(fields)) end
end
