-- Queues a message for the sender. Queueing the same id twice has no effect.
-- KEYS    deliveries, resends, waiting, delivered, failed, events, calls, resending
-- ARGV    id, the document (JSON), when the event happened, ms, the number of the queue in KEYS,
--         how many messages may wait behind the first, how long the keys are kept, s
-- RETURNS the ids of the messages over that limit, oldest first
local id, queue = ARGV[1], KEYS[tonumber(ARGV[4])]
local is_settled = redis.call('ZSCORE', KEYS[4], id) or redis.call('ZSCORE', KEYS[5], id)
if not is_settled and redis.call('HEXISTS', KEYS[2], id) == 0
    and not redis.call('ZSCORE', queue, id) then
  local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or 0
  redis.call('HSETNX', KEYS[1], id, ARGV[2])
  redis.call('ZADD', KEYS[3], ARGV[3], id)
  redis.call('ZADD', queue, last + 1, id)
  for k = 1, 7 do redis.call('EXPIRE', KEYS[k], ARGV[6]) end
end
local excess = redis.call('ZCARD', queue) - 1 - ARGV[5]
return excess > 0 and redis.call('ZRANGE', queue, 1, excess) or {}
