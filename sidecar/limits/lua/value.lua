-- Sets the limit of a key, or takes back what was set. What was promised stays; but where the limit
-- is lowered, no moment of before is passed on any more, and a bucket that empties more slowly now
-- is kept for longer.
-- KEYS    1 values 2 state; where the rule paces: 3 free 4 booked
-- ARGV    2 the key's name 3 its limit from now on (-1: none), or '' to go by the file
--         4 its limit by the file 5 the window's length of a bucket, or 0 6 1: the state is a set
-- RETURNS nothing
-- @include "limits/parts/head"
local function run(KEYS, ARGV)
  begin(ARGV)
  local VALUES, state, free, booked = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
  local name, by_file, LENGTH = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
  local before = tonumber(redis_call('HGET', VALUES, name) or by_file)
  local limit = tonumber(ARGV[3]) or by_file
  if ARGV[3] == '' then
    redis_call('HDEL', VALUES, name)
  else
    redis_call('HSET', VALUES, name, ARGV[3])
  end
  if limit < 0 or before >= 0 and limit >= before then return end

  local last, used = 0, 0
  if ARGV[6] == '1' then
    last = tonumber(redis_call('ZRANGE', state, '-1', '-1', 'WITHSCORES')[2] or 0)
  else
    local at, amount = string.match(redis_call('GET', state) or '0 0', '(%S+) (%S+)')
    last, used = tonumber(at), tonumber(amount)
  end
  if free and last > now then
    redis_call('ZREMRANGEBYSCORE', free, '-inf', '+inf')
    redis_call('ZADD', booked, int(last), 'lowered')
    keep(booked, last)
  end
  -- By a limit of 0 it never empties: it is kept for as long as if a call a window went.
  if LENGTH > 0 and last > 0 then
    keep(state, last + math.ceil(used * LENGTH / math.max(1, limit)))
  end
end
