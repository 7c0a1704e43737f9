-- Detects that Redis lost some of the room's keys, by eviction or because somebody used DEL. Each
-- script that changes something stores how many keys exist (stats.keys), and its `measured_at`
-- (stats.keys_at). If stats.measured_at differs from stats.keys_at, a replica of an older version
-- has changed something, and the number of keys is unknown. If fewer keys exist than stats.keys,
-- the room recovers as after the loss of all data: places and sessions are restored from cookies.
-- stats.known: the time before the loss at which the room was created, in ms.
local detect_lost_keys, store_key_count
do
local function count_keys()
  return redis_call('EXISTS', WAITING, DUE, ACTIVE, ADMITTED, REVOKED, SPENT, CONFIG, ARRIVALS,
    DRAWN)
end

function detect_lost_keys()
  local is_count_current = stats.keys and stats.keys_at == stats.measured_at
  if not is_count_current or count_keys() >= stats.keys then return end
  redis_call('UNLINK', WAITING, DUE, RESERVED, ACTIVE, ADMITTED, POLLS, ARRIVALS)
  stats.known, stats.born = stats.known or stats.born, now
  stats.keys = count_keys()
  save_numbers()
  count('lost')
end

function store_key_count()
  if stats.keys_at == stats.measured_at then return end -- this script has changed nothing
  stats.keys, stats.keys_at = count_keys(), stats.measured_at
end
end
