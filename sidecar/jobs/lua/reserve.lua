-- Gives jobs that are being submitted their orders, and keeps each a place for a while.
-- KEYS     jobs/parts/head
-- ARGV     4 how long, µs; then for each: job, how many may wait or '', and of its class: head
--          start, µs, priority, number (0: it has none)
-- RETURNS  now; then for each its order, or '' where the queue is full
-- @include "jobs/parts/state"
local function run(KEYS, ARGV)
  begin_state(KEYS, ARGV)
  local taken, replies, adds = redis_call('ZCOUNT', RESERVED, '(' .. int(now), '+inf'), {now}, {}
  taken = taken + redis_call('ZCARD', LINE) + redis_call('ZCARD', LATER)
  for i = 5, #ARGV, 5 do
    local most = tonumber(ARGV[i + 1]) or math.huge
    if taken >= most then
      replies[#replies + 1] = ''
    else
      taken = taken + 1
      target.last_order = arrive_after(target.last_order, now)
      local start, priority, number = unpack(ARGV, i + 2, i + 4)
      replies[#replies + 1] =
        order_by(target.last_order, tonumber(start), tonumber(priority), tonumber(number))
      adds[#adds + 1], adds[#adds + 2] = int(now + tonumber(ARGV[4])), ARGV[i]
    end
  end
  queue.write_all('ZADD', RESERVED, adds)
  finish_state()
  local over = redis_call('ZRANGEBYSCORE', RESERVED, '-inf', int(now), 'LIMIT', 0, BOUND)
  queue.write_all('ZREM', RESERVED, over)
  return replies
end
