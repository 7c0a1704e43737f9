-- @include "leases/parts/template"
-- @include "visitors/numbers"
-- Reads and writes the state of a template, which all its resources share. Its numbers:
--   born     when the template's first script ran in this Redis, ms
--   last     the last fencing number or order, µs
--   recovers the time until which nothing is granted, because Redis was emptied, ms
--   seen     when the last sweep ran, ms
--   back     when the last outage ended, ms: at the first script after a long pause of the sweeps.
--            Heartbeats could not arrive during the outage, so no holder counts as silent then
--   ends     how many leases have ended, counted up to 20
--   held_ms  the moving average of how long leases were held
local NUMBERS = {'born', 'last', 'recovers', 'seen', 'back', 'ends', 'held_ms'}
-- A script does not write the state first, because a full Redis would refuse the write, and the
-- script would fail. A script that begins with a removal works in a full Redis.
local loaded, state -- the numbers as they were read, and as the script changes them
local recovers_until -- the end of the recovery, ms (0: there is none)
-- A longer pause between sweeps means that all replicas, or Redis, were unavailable.
local MAX_PAUSE_MS = 5000

local function load_state(ARGV)
  loaded, state = queue.load_numbers(STATE, NUMBERS)
  -- Redis was emptied if a replica has known the template since before `born`. Leases from before
  -- the loss may still be in use, so nothing is granted until all their terms are over.
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
  -- The replica may have seen a higher number than Redis, which a failover lost.
  if ARGV[4] ~= '' then state.last = math.max(state.last or 0, tonumber(ARGV[4])) end
end

-- Returns the time at which a heartbeat is due, but no earlier than the end of the last outage.
local function get_due_after_outage(due)
  return math.max(due, state.back or 0)
end

local function is_recovering()
  return now < recovers_until
end

local function next_fence()
  state.last = queue.next_number(state.last, now_us)
  return state.last
end

-- Returns whether an order or a fencing number was given before Redis was emptied.
local function is_before_loss(number)
  return number > 0 and number < state.born * 1000
end

-- Adds the length of an ended lease to the moving average.
local function record_lease_length(held_ms)
  state.ends = math.min((state.ends or 0) + 1, 20)
  state.held_ms = state.held_ms or 0
  state.held_ms = state.held_ms + (math.max(0, held_ms) - state.held_ms) / state.ends
end

local function write_state()
  local fields = queue.changed_numbers(NUMBERS, loaded, state)
  -- A full Redis may refuse this write; then the next script writes it. A lease is never granted
  -- without it: Redis would have refused the write of the lease before, and the script would fail.
  if #fields > 0 then redis.pcall('HSET', STATE, unpack(fields)) end
end
