-- @include "leases/parts/template"
-- @include "visitors/numbers"
-- The state of a template, shared by all its resources; write_state() writes it.
--   born     when the template's first script ran in this Redis, ms
--   last     the last fencing number or order, µs
--   recovers until when nothing is granted, because Redis was emptied, ms
--   seen     when the last sweep ran, ms
--   back     when sweeps began again after a pause, ms. No heartbeat could arrive during the
--            pause, so nobody counts as silent for that time
--   ends, held_ms  how many leases ended (20 at most), and the moving average of their length
local NUMBERS = {'born', 'last', 'recovers', 'seen', 'back', 'ends', 'held_ms'}
-- `state` is not written at the start of a script, because a full Redis refuses a first write that
-- may need memory. A script that ends leases must begin with a removal instead.
local loaded, state
local recovers_until
-- A longer pause between sweeps means that all replicas, or Redis, were unavailable.
local MAX_PAUSE_MS = 5000

local function load_state(ARGV)
  loaded, state = queue.load_numbers(STATE, NUMBERS)
  -- Redis was emptied if a replica knows the template from before `born`. Leases from before that
  -- may still be held, so nothing is granted until all their terms are over.
  state.born = math.min(state.born or now, now) -- a clock may jump back
  if not state.recovers and (tonumber(ARGV[3]) or state.born) < state.born then
    state.recovers = state.born + term_ms
  end
  if state.recovers then state.recovers = math.min(state.recovers, now + term_ms) end
  recovers_until = state.recovers or 0
  if state.seen and now - state.seen > math.max(MAX_PAUSE_MS, claim_ms) then
    state.back, state.seen = now, now
  end
  -- Orders and fencing numbers share one sequence, which only grows, even if the clock jumps back.
  -- The replica may know a number that Redis lost in a failover.
  if ARGV[4] ~= '' then state.last = math.max(state.last or 0, tonumber(ARGV[4])) end
end

-- Returns when a heartbeat is due: not before the end of the last pause of the sweeps.
local function get_due_time(due)
  return math.max(due, state.back or 0)
end

local function is_recovering()
  return now < recovers_until
end

local function next_fence()
  state.last = queue.next_number(state.last, now_us)
  return state.last
end

-- Returns whether an order or a fencing number is from before Redis was emptied.
local function is_before_loss(number)
  return number > 0 and number < state.born * 1000
end

-- Adds the length of a lease that ended to the moving average.
local function record_length(held_ms)
  state.ends = math.min((state.ends or 0) + 1, 20)
  state.held_ms = state.held_ms or 0
  state.held_ms = state.held_ms + (math.max(0, held_ms) - state.held_ms) / state.ends
end

local function write_state()
  local fields = queue.changed_numbers(NUMBERS, loaded, state)
  -- A full Redis may refuse this write, and the next script repeats it. A grant depends on the
  -- state, but then the grant's own write was refused before, and the script failed there.
  if #fields > 0 then redis.pcall('HSET', STATE, unpack(fields)) end
end
