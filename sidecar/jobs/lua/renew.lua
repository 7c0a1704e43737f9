-- Prolongs locks of workers.
-- KEYS     jobs/parts/head
-- ARGV     4 for how long, µs; then for each: job, fence
-- RETURNS  now; then for each 1: held; 2: held, and the call is to be cut off; 0: lost. Until a
--          lost queue is rebuilt nothing is called, so that a missing lock is held
-- @include "jobs/parts/state"
local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  local jobs, replies, ends = {}, {now}, int(now + tonumber(ARGV[4]))
  for i = 5, #ARGV, 2 do jobs[#jobs + 1] = ARGV[i] end
  local facts = redis_call('HMGET', FACTS, unpack(jobs))
  local aborts = redis_call('SMISMEMBER', ABORTS, unpack(jobs))
  local adds = {}
  for n, job in ipairs(jobs) do
    local fence, word = read_fact(facts[n])
    if fence == tonumber(ARGV[2 * n + 4]) and word == 'r' then
      adds[#adds + 1], adds[#adds + 2] = ends, job
      replies[#replies + 1] = 1 + aborts[n]
    else
      replies[#replies + 1] = (fence or target.ready) and 0 or 1
    end
  end
  if #adds > 0 then
    begin_with_removal()
    redis_call('ZADD', ACTIVE, unpack(adds))
  end
  return replies
end
