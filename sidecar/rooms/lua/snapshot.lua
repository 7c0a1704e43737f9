-- Returns the state of a room. Replicas poll it to learn of changed settings and revoked passes.
-- ARGV    6 the time from which on to list revocations, ms
--         7 how many revocations to list at most
--         8 the id of the replica that polls, or ''
--         9 `measured_at` in the last snapshot that the replica read, or ''
-- RETURNS {now, number of waiting visitors, of sessions, of provisional sessions, epoch, revision,
--          a newcomer's wait (ms) or -1, config hash as a flat list, stats hash as a flat list,
--          {visitor, when the pass was revoked, …}, stage of the recovery, when it ends or 0,
--          number of replicas, number of events in the stream, id of the oldest event, phase,
--          {visitors in a sub-queue, a newcomer's wait there (ms) or -1, …}, number of stored void
--          tokens, look hash as a flat list}
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
  local is_known = stage == 0
  local in_lines, last_calls = {}, waiting
  for n, length in ipairs(#lines > 0 and get_sub_queue_lengths() or {}) do
    local ahead = redis_call('ZCOUNT', WAITING, '-inf', '(' .. int(select(2, order_range(n))))
    local calls = count_calls_before(n, length, ahead)
    in_lines[2 * n - 1] = length
    in_lines[2 * n] = is_known and math.floor(estimate_wait(calls) or -1) or -1
    last_calls = calls
  end
  local wait = is_known and estimate_wait(last_calls) or -1
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
