-- Reads the state of the target's queue, and where jobs are. Changes nothing.
-- KEYS     jobs/parts/head; jobs/parts/rate
-- ARGV     4 to 7 jobs/parts/rate; from 8 on the jobs
-- RETURNS  now, waiting, later, active, reserved, the smoothed duration of a call, µs (-1: none was
--          measured), calls in the window, breaker, until when it is open and the target held, µs,
--          1 if it is ready, when a worker last asked, µs (0: none did); called, completed, failed,
--          retried, lost, expired; then for each job: where, its place, fence, until when, µs
-- @include "jobs/parts/breaker"
-- @include "jobs/parts/rate"
local COUNTED = {'called', 'completed', 'failed', 'retried', 'lost', 'expired'}
local PLACES = {r = 'running', c = 'called', u = 'used'}

local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  begin_rate(KEYS, ARGV)
  local replies = {
    now, redis_call('ZCARD', LINE), redis_call('ZCARD', LATER), redis_call('ZCARD', ACTIVE),
    redis_call('ZCOUNT', RESERVED, '(' .. int(now), '+inf'), math.floor(target.mean_us or -1),
    calls_in_use(), breaker(), target.open_until or 0, target.held_until or 0,
    target.ready and 1 or 0, target.runner or 0,
  }
  for _, name in ipairs(COUNTED) do replies[#replies + 1] = target[name] or 0 end

  local jobs = {unpack(ARGV, 8)}
  if #jobs == 0 then return replies end
  local laters, actives = queue.scores_of(LATER, jobs), queue.scores_of(ACTIVE, jobs)
  local facts = redis_call('HMGET', FACTS, unpack(jobs))
  for n, job in ipairs(jobs) do
    local rank = redis_call('ZRANK', LINE, job)
    local fence, word = read_fact(facts[n])
    local where, ends = 'gone', 0
    if rank then
      where = 'line'
    elseif laters[n] then
      where, ends = 'later', tonumber(laters[n])
    elseif word and actives[n] then
      where, ends = PLACES[word], tonumber(actives[n])
    end
    local i = #replies
    replies[i + 1], replies[i + 2], replies[i + 3] = where, rank and rank + 1 or 0, fence or 0
    replies[i + 4] = ends
  end
  return replies
end
