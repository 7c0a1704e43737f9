-- Sets the limit of one rate-limited key, or resets it to the configured limit. Paced calls keep
-- their times. If the limit is lowered, other calls cannot take times that are released later. The
-- state of a bucket then lives longer, because the bucket empties more slowly.
-- KEYS    1 values  2 revisions  3 digest  4 state; if the limit paces: 5 free  6 booked
-- ARGV    2 the rate-limited key
--         3 its new limit (-1: none), or '' for the configured limit
--         4 its configured limit
--         5 the length of the window of a bucket, else 0
--         6 1 if the state is a set
--         7 the highest revision that the replica knows or, if ARGV[8] is 1, the revision of a
--           change that Redis has lost
--         8 1 to restore this lost change, unless Redis has a later change of the key
-- RETURNS the revision of the key's last change
-- @include "limits/parts/revisions"
local function run(KEYS, ARGV)
  begin(ARGV)
  local VALUES, REVISIONS, state, free, booked = KEYS[1], KEYS[2], KEYS[4], KEYS[5], KEYS[6]
  local name, configured, LENGTH = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
  local old_limit = tonumber(redis_call('HGET', VALUES, name) or configured)
  local new_limit = tonumber(ARGV[3]) or configured
  local old_revision = tonumber(redis_call('ZSCORE', REVISIONS, name) or 0)
  local revision = tonumber(ARGV[7])
  if ARGV[8] ~= '1' then
    revision = next_revision(REVISIONS, revision)
  elseif revision <= old_revision then
    return old_revision
  end
  write_value(KEYS, name, ARGV[3], revision, old_revision)
  if new_limit < 0 or old_limit >= 0 and new_limit >= old_limit then return revision end

  local last_time, used = 0, 0
  if ARGV[6] == '1' then
    last_time = tonumber(redis_call('ZRANGE', state, '-1', '-1', 'WITHSCORES')[2] or 0)
  else
    local at, amount = string.match(redis_call('GET', state) or '0 0', '(%S+) (%S+)')
    last_time, used = tonumber(at), tonumber(amount)
  end
  if free and last_time > now then
    redis_call('ZREMRANGEBYSCORE', free, '-inf', '+inf')
    redis_call('ZADD', booked, int(last_time), 'lowered')
    extend_expiry(booked, last_time)
  end
  -- With a limit of 0, a bucket never empties. Its state then lives as long as with a limit of 1.
  if LENGTH > 0 and last_time > 0 then
    extend_expiry(state, last_time + math.ceil(used * LENGTH / math.max(1, new_limit)))
  end
  return revision
end
