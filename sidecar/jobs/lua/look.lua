-- Reads the state of the target's queue and of some jobs. Changes nothing.
-- KEYS     as in jobs/parts/head and jobs/parts/rate
-- ARGV     4 to 7 as in jobs/parts/rate; from 8 on the ids of the jobs
-- RETURNS  what describe_queue() returns (jobs/parts/look)
--          then for each job what describe_jobs() appends
-- @include "jobs/parts/look"
local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  begin_rate(KEYS, ARGV)
  local replies = describe_queue()
  describe_jobs({unpack(ARGV, 8)}, replies)
  return replies
end
