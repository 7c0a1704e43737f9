-- Sets the limit of a key, or resets it to the configured value. Moments already given to calls
-- stay; but if the limit is lowered, they are not passed on when given back, and a bucket that now
-- empties more slowly is kept for longer.
-- KEYS    1 values 2 state; if the limit paces: 3 free 4 booked
-- ARGV    2 the key's name 3 its new limit (-1: none), or '' for the configured one
--         4 its configured limit 5 the window's length of a bucket, or 0 6 1: the state is a set
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
  -- With a limit of 0 it never empties: it is kept as with a limit of 1.
  if LENGTH > 0 and last > 0 then
    keep(state, last + math.ceil(used * LENGTH / math.max(1, limit)))
  end
end
