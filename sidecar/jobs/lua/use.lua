-- Uses permits. A permit can be used once. From then on, its call is active until the call ends or
-- times out.
-- KEYS     as in jobs/parts/head
-- ARGV     from 4 on, for each permit: job, fence, how long the call may take (its term), µs, the
--          id of the request that uses the permit, or ''
-- RETURNS  now
--          then for each permit one of:
--          1   the client may make the call, or the same request used the permit before
--          0   another request used the permit
--          -1  the permit is not valid any more
--          -2  unknown, because the queue was lost and is not rebuilt yet
-- @include "jobs/parts/state"
local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  local replies, invalid = {now}, target.ready and -1 or -2
  for i = 4, #ARGV, 4 do
    local job, permit_fence, term_us, request = unpack(ARGV, i, i + 3)
    local fence, call_state, _, is_trial, used_by = read_fact(redis_call('HGET', FACTS, job))
    local is_current = fence and fence == tonumber(permit_fence)
      and tonumber(redis_call('ZSCORE', ACTIVE, job) or 0) > now
    if is_current and call_state == 'c' then
      begin_with_removal()
      redis_call('ZADD', ACTIVE, int(now + tonumber(term_us)), job)
      redis_call('HSET', FACTS, job, make_fact(fence, 'u', now, is_trial, request))
    end
    local is_repeat = call_state == 'u' and request ~= '' and used_by == request
    local reply = (call_state == 'c' or is_repeat) and 1 or call_state == 'u' and 0
    replies[#replies + 1] = is_current and reply or invalid
  end
  return replies
end
