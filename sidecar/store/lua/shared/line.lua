-- @include "shared/due"
-- @include "shared/wait"
-- Places in line.

-- max(now in µs, last + 1): strictly increasing, and exact in a double until the year 2255.
-- In a random room the order is drawn by the caller.
local function next_order(draw)
  if room.queueing_method == 'random' then return math.floor(draw * 2 ^ 50) end
  stats.last_order = math.max(now * 1000, (stats.last_order or 0) + 1)
  return stats.last_order
end

-- Somebody is back at a place that was taken at `joined` (ms; nil where unknown). The caller
-- notes in `due` when the next heartbeat is expected.
local function join(visitor, order, why, joined)
  put(WAITING, int(order), visitor)
  event('joined', visitor, why, 'order', int(order), 'joined', int(joined or now))
end

-- The first few in line look often, however slowly the line moves: theirs is the next slot.
local NEAR_THE_DOOR = 5

-- A tenth of the wait (ms, nil if unknown), 2 s to 60 s, or as the room fixes it; up to a
-- quarter is added at random so that those who came together do not poll together.
local function refresh_ms(ahead, wait, jitter)
  local refresh
  if room.heartbeat_interval then
    refresh = room.heartbeat_interval * 1000
  else
    refresh = 2000
    if ahead >= NEAR_THE_DOOR then
      refresh = math.min(48000, math.max(2000, (wait or 600000) / 10))
    end
    refresh = refresh * (1 + jitter / 4)
  end
  return math.floor(math.min(refresh, timeout_ms / 2))
end

-- A poll that comes before it is due is counted; one that comes as advised costs nothing.
-- Returns the ms until the count starts anew where it is over poll_limit, else 0.
local minute
local function early_poll(visitor, due)
  if not is_early(due) then return 0 end
  if not minute then
    minute = int(math.floor(now / 60000))
    if redis_call('HGET', POLLS, 'minute') ~= minute then
      redis_call('UNLINK', POLLS)
      redis_call('HSET', POLLS, 'minute', minute)
      redis_call('PEXPIRE', POLLS, 120000)
    end
  end
  if redis_call('HINCRBY', POLLS, visitor, 1) <= room.poll_limit then return 0 end
  return 60000 - now % 60000
end
