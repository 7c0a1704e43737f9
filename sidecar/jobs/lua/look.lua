-- Reads the state of the target's queue and of some jobs. Changes nothing.
-- KEYS     jobs/parts/head; jobs/parts/rate
-- ARGV     4 to 7 jobs/parts/rate; from 8 on the ids of the jobs
-- RETURNS  now and the rest of the queue's state; then the jobs' (jobs/parts/look)
-- @include "jobs/parts/look"
local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  begin_rate(KEYS, ARGV)
  local replies = describe_queue()
  describe_jobs({unpack(ARGV, 8)}, replies)
  return replies
end
