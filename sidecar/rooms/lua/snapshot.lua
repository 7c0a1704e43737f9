-- Returns the state of a room. Replicas poll it to learn of changed settings and revoked passes.
-- ARGV    6 the earliest time of the revocations to list, ms
--         7 the maximum number of revocations to list
--         8 the id of the replica that polls, or ''
--         9 `measured_at` in the last snapshot that the replica read, or ''
-- RETURNS a list; hashes are flat lists of names and values, times are in ms:
--         now
--         number of waiting visitors
--         number of sessions
--         number of provisional sessions
--         epoch
--         revision
--         a newcomer's expected wait, or -1
--         the hash `config`
--         the hash `stats`
--         {visitor, when the pass was revoked, …}
--         stage of the recovery
--         when the recovery ends, or 0
--         number of replicas
--         number of entries in the event stream
--         id of the oldest entry
--         phase
--         {length of a sub-queue, a newcomer's expected wait there or -1, …}
--         number of stored revocations and spent tickets
--         the hash `look`
-- EVENTS  called, expired, promised
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"
-- @include "rooms/parts/estimate_wait"
-- @include "rooms/parts/minutes"
-- @include "rooms/parts/position"
-- A replica that has not polled for this long is not counted. Replicas poll every second.
local REPLICA_MS = 5000

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  recover_from_older_data(tonumber(ARGV[9]), tonumber(ARGV[3]), tonumber(ARGV[4]))
  measure_elapsed()
  expire()
  call_next()
  finish()
  if ARGV[8] ~= '' then redis_call('ZADD', REPLICAS, int(now), ARGV[8]) end
  redis_call('ZREMRANGEBYSCORE', REPLICAS, '-inf', int(now - REPLICA_MS))
  local waiting, active = size(WAITING), size(ACTIVE)
  local is_wait_known = stage == 0
  local in_lines, last_calls = {}, waiting
  for n, length in ipairs(#lines > 0 and get_sub_queue_lengths() or {}) do
    local ahead = redis_call('ZCOUNT', WAITING, '-inf', '(' .. int(select(2, order_range(n))))
    local calls = count_calls_before(n, length, ahead)
    in_lines[2 * n - 1] = length
    in_lines[2 * n] = is_wait_known and math.floor(estimate_wait(calls) or -1) or -1
    last_calls = calls
  end
  local wait = is_wait_known and estimate_wait(last_calls) or -1
  store_sample(wait)
  check_arrivals()
  local oldest = redis_call('XRANGE', EVENTS, '-', '+', 'COUNT', 1)
  local provisional = math.max(0, active - redis_call('ZCARD', ADMITTED))
  return {now, waiting, active, provisional, epoch, revision,
    math.floor(wait), redis_call('HGETALL', CONFIG),
    redis_call('HGETALL', STATS), redis_call('ZRANGEBYSCORE', REVOKED, ARGV[6], '+inf',
      'WITHSCORES', 'LIMIT', 0, tonumber(ARGV[7])),
    stage, math.max(0, recovers_until), redis_call('ZCARD', REPLICAS),
    redis_call('XLEN', EVENTS), oldest[1] and oldest[1][1] or '', phase, in_lines,
    redis_call('ZCARD', REVOKED) + redis_call('ZCARD', SPENT), redis_call('HGETALL', LOOK)}
end
