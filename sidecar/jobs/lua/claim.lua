-- Calls as many jobs as the target allows, of them as many offline jobs as the worker can take. An
-- offline job at the head that it cannot take lets no other past.
-- KEYS     jobs/parts/head; jobs/parts/rate
-- ARGV     4 to 7 jobs/parts/rate  8 how many offline jobs  9 how many calls at a time
--          10 1: nothing is called  11 how long a worker's lock lasts, µs  12 a permit
-- RETURNS  now, 1 if the target is ready, when to claim again, µs (-1: at a wake-up), when the
--          store was found new, µs, or 0; then for each call: job, fence, order, 1 if it is
--          online, 1 if it is a trial
-- @include "jobs/parts/call"
local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  begin_rate(KEYS, ARGV)
  free_slots, is_paused = tonumber(ARGV[8]), ARGV[10] == '1'
  lock_us, permit_us, replies = tonumber(ARGV[11]), tonumber(ARGV[12]), {}
  settle()
  if free_slots > 0 and math.abs(now - (target.runner or 0)) >= 1000000 then target.runner = now end
  -- Calls have begun: a clock that jumps back does not stop them.
  if target.ready and target.ready <= now then target.ready = 1 end
  is_trial = breaker() == 'trial'
  room = (is_trial and 1 or tonumber(ARGV[9])) - redis_call('ZCARD', ACTIVE)

  local moment = next_moment()
  local born = 0
  if not target.ready then
    redis_call('HSETNX', STATE, 'born', int(now))
    born = tonumber(redis_call('HGET', STATE, 'born'))
  end
  finish_state()
  return {now, target.ready and 1 or 0, moment < math.huge and moment or -1, born, unpack(replies)}
end
