-- Adds a message to a queue, unless a message with the same id was added before.
-- KEYS    deliveries, resends, waiting, delivered, failed, events, calls, retries, failures,
--         resending
-- ARGV    1 the id of the message
--         2 its document (JSON)
--         3 when the event happened, ms
--         4 the number of the queue in KEYS
--         5 how many messages may wait behind the first message of the queue
--         6 how long the keys live, s
-- RETURNS the ids of the messages over that limit, oldest first
local id, queue = ARGV[1], KEYS[tonumber(ARGV[4])]
local is_settled = redis.call('ZSCORE', KEYS[4], id) or redis.call('ZSCORE', KEYS[5], id)
if not is_settled and redis.call('HEXISTS', KEYS[2], id) == 0
    and not redis.call('ZSCORE', queue, id) and not redis.call('ZSCORE', KEYS[8], id) then
  local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or 0
  redis.call('HSETNX', KEYS[1], id, ARGV[2])
  redis.call('ZADD', KEYS[3], ARGV[3], id)
  redis.call('ZADD', queue, last + 1, id)
  for k = 1, 8 do redis.call('EXPIRE', KEYS[k], ARGV[6]) end
end
local excess = redis.call('ZCARD', queue) - 1 - ARGV[5]
return excess > 0 and redis.call('ZRANGE', queue, 1, excess) or {}
