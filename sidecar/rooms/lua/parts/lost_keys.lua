-- Detects that single keys were lost, because Redis evicted them or somebody used DEL. Each script
-- that changes something stores in `keys` how many keys exist, and in `keys_at` its `measured_at`.
-- A replica of an older version changes only `measured_at`, and then the number is unknown. If
-- fewer keys exist than stored, the room recovers as after the loss of all data: places and
-- sessions are restored from cookies. `known`: since when the room had existed.
local detect_lost_keys, store_key_count
do
local function count_keys()
  return redis_call('EXISTS', WAITING, DUE, ACTIVE, ADMITTED, REVOKED, SPENT, CONFIG, ARRIVALS,
    DRAWN)
end

function detect_lost_keys()
  local is_noted = stats.keys and stats.keys_at == stats.measured_at
  if not is_noted or count_keys() >= stats.keys then return end
  redis_call('UNLINK', WAITING, DUE, RESERVED, ACTIVE, ADMITTED, POLLS, ARRIVALS)
  stats.known, stats.born = stats.known or stats.born, now
  stats.keys = count_keys()
  save()
  count('lost')
end

function store_key_count()
  if stats.keys_at == stats.measured_at then return end -- this script has changed nothing
  stats.keys, stats.keys_at = count_keys(), stats.measured_at
end
end
