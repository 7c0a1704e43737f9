-- A Redis that evicts, or somebody's DEL, takes single keys. How many of these there are is noted
-- by each script that changes something, in `keys`, and beside it its `measured_at`: a replica of
-- an older version changes that alone, and then nobody knows. Fewer than noted: places and sessions
-- come back from cookies, as after the loss of the whole store. `known`: since when it had been
-- there.
local begin_keys, keep_keys
do
local function count_keys()
  return redis_call('EXISTS', WAITING, DUE, ACTIVE, ADMITTED, REVOKED, SPENT, CONFIG, ARRIVALS,
    DRAWN)
end

function begin_keys()
  local is_noted = stats.keys and stats.keys_at == stats.measured_at
  if not is_noted or count_keys() >= stats.keys then return end
  redis_call('UNLINK', WAITING, DUE, RESERVED, ACTIVE, ADMITTED, POLLS, ARRIVALS)
  stats.known, stats.born = stats.known or stats.born, now
  stats.keys = count_keys()
  save()
  count('lost')
end

function keep_keys()
  if stats.keys_at == stats.measured_at then return end -- nothing was changed
  stats.keys, stats.keys_at = count_keys(), stats.measured_at
end
end
