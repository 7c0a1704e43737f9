-- @include "rooms/parts/heartbeat_due"
-- Counts each visitor's early polls in the current minute: those before the time that the last
-- reply advised.

local count_early_poll
do
-- Returns whether a poll comes before it is due. `score`: the visitor's score in `due`.
local function is_early(score)
  return score % 1 < UNUSED and now < math.floor(score)
end

-- Counts the poll if it is early. Returns 0, or for a visitor over poll_limit the time until the
-- next minute begins, in ms.
function count_early_poll(visitor, due)
  if not is_early(due) then return 0 end
  if not cache.minute then
    local minute = int(math.floor(now / 60000))
    cache.minute = minute
    if redis_call('HGET', POLLS, 'minute') ~= minute then
      redis_call('UNLINK', POLLS)
      redis_call('HSET', POLLS, 'minute', minute)
      redis_call('PEXPIRE', POLLS, 120000)
    end
  end
  if redis_call('HINCRBY', POLLS, visitor, 1) <= room.poll_limit then return 0 end
  return 60000 - now % 60000
end
end
