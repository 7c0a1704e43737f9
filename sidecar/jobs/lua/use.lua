-- Uses permits, each once. The call counts until it ends or its term is over.
-- KEYS     jobs/parts/head
-- ARGV     from 4 on, for each: job, fence, how long the term is, µs, the request's id or ''
-- RETURNS  now; then for each 1: it may call (the same request gets this again); 0: it was used
--          before; -1: the job is not called, or no longer; -2: unknown, since the queue was lost
--          and is not rebuilt
-- @include "jobs/parts/state"
local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  local replies, unknown = {now}, target.ready and -1 or -2
  for i = 4, #ARGV, 4 do
    local job, permit_fence, term_us, request = unpack(ARGV, i, i + 3)
    local fence, word, _, is_trial, by = read_fact(redis_call('HGET', FACTS, job))
    local is_its = fence and fence == tonumber(permit_fence)
      and tonumber(redis_call('ZSCORE', ACTIVE, job) or 0) > now
    if is_its and word == 'c' then
      begin_with_removal()
      redis_call('ZADD', ACTIVE, int(now + tonumber(term_us)), job)
      redis_call('HSET', FACTS, job, fact(fence, 'u', now, is_trial, request))
    end
    local is_again = word == 'u' and request ~= '' and by == request
    local answer = (word == 'c' or is_again) and 1 or word == 'u' and 0
    replies[#replies + 1] = is_its and answer or unknown
  end
  return replies
end
