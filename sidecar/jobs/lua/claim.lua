-- Calls as many jobs as the target allows, but no more offline jobs than the worker has free slots.
-- If the first job is offline and the worker has no free slot, the jobs behind it wait too.
-- KEYS     as in jobs/parts/head and jobs/parts/rate
-- ARGV     4 to 7 as in jobs/parts/rate
--          8 how many more offline jobs the worker can call
--          9 how many calls the target allows at a time
--          10 1 if the target is paused
--          11 the duration of a worker's lock, µs
--          12 the duration of a permit, µs
-- RETURNS  now
--          1 if the target is ready
--          when to claim again, µs (-1: after a wake-up)
--          when Redis was first seen to be empty, µs, or 0
--          then for each call: job, fence, order, 1 if the job is online, 1 if the call is a trial
-- @include "jobs/parts/call"
local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  begin_rate(KEYS, ARGV)
  free_slots, is_paused = tonumber(ARGV[8]), ARGV[10] == '1'
  lock_us, permit_us, replies = tonumber(ARGV[11]), tonumber(ARGV[12]), {}
  settle_due_jobs()
  if free_slots > 0 and math.abs(now - (target.runner or 0)) >= 1000000 then target.runner = now end
  -- Once the target has become ready, a clock that jumps back must not stop its calls.
  if target.ready and target.ready <= now then target.ready = 1 end
  is_trial = read_breaker_state() == 'trial'
  free_calls = (is_trial and 1 or tonumber(ARGV[9])) - redis_call('ZCARD', ACTIVE)

  local claim_at = find_next_claim_time()
  local detected_us = 0
  if not target.ready then
    redis_call('HSETNX', STATE, 'born', int(now))
    detected_us = tonumber(redis_call('HGET', STATE, 'born'))
  end
  finish_state()
  return {now, target.ready and 1 or 0, claim_at < math.huge and claim_at or -1, detected_us,
    unpack(replies)}
end
