-- @include "rooms/parts/heartbeat_due"
-- Polls that come before they are due, counted by visitor and minute; a poll that comes as advised
-- costs nothing.

local early_poll
do
-- Whether a poll comes before it is due. `score`: a visitor's score in `due`, as a number.
local function is_early(score)
  return score % 1 < UNUSED and now < math.floor(score)
end

-- Counts an early poll. Returns 0, or where the visitor is over poll_limit, in how many ms the
-- count starts anew.
function early_poll(visitor, due)
  if not is_early(due) then return 0 end
  if not found.minute then
    local minute = int(math.floor(now / 60000))
    found.minute = minute
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
