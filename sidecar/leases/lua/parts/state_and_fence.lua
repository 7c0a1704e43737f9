-- @include "leases/parts/template"
-- @include "visitors/numbers"
-- What the template remembers over all its resources; written by finish_state().
--   born     when the first script ran in this store, ms
--   last     the last fencing number or order, µs
--   recovers until when nothing is granted, because the store was emptied, ms
--   seen     when a sweep was here last, ms; back  since when there are sweeps again after a time
--            without: nobody could ask meanwhile, so nobody was silent
--   ends, held_ms  how many leases ended (20 at most), how long one is held: what is older fades
local NUMBERS = {'born', 'last', 'recovers', 'seen', 'back', 'ends', 'held_ms'}
-- Not written here: a full store refuses a script's first write if that may take room, and what
-- ends leases must be able to begin with a removal.
local loaded, state
local recovers_until
-- No replica was there, or the store was away, for longer than the next holder has to come.
local AWAY_MS = 5000

local function begin_state(ARGV)
  loaded, state = queue.load_numbers(STATE, NUMBERS)
  -- A store is emptied if somebody knows the template from before it was made: any holder of a
  -- lease then may hold it still, so nothing is granted until every such term is over.
  state.born = math.min(state.born or now, now) -- a clock may jump back
  if not state.recovers and (tonumber(ARGV[3]) or state.born) < state.born then
    state.recovers = state.born + term_ms
  end
  if state.recovers then state.recovers = math.min(state.recovers, now + term_ms) end
  recovers_until = state.recovers or 0
  if state.seen and now - state.seen > math.max(AWAY_MS, claim_ms) then
    state.back, state.seen = now, now
  end
  -- Orders and fencing numbers are of one row, so that both only grow, whatever the clock does. The
  -- replica may know of one that was lost when another server became the store.
  if ARGV[4] ~= '' then state.last = math.max(state.last or 0, tonumber(ARGV[4])) end
end

-- When somebody was to be heard of.
local function due_at(due)
  return math.max(due, state.back or 0)
end

local function is_recovering()
  return now < recovers_until
end

local function next_fence()
  state.last = queue.next_number(state.last, now_us)
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
  local fields = queue.changed_numbers(NUMBERS, loaded, state)
  -- A store that is full and refuses it hears of it again; what must not go without it was refused
  -- before it.
  if #fields > 0 then redis.pcall('HSET', STATE, unpack(fields)) end
end
