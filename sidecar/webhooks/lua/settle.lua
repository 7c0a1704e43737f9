-- Stores the result of a delivery, and removes messages that are too old or over the limit.
-- KEYS    deliveries, resends, waiting, delivered, failed, events, calls, resending
-- ARGV    how many delivered and how many failed messages are kept; for how long, s; after how long
--         a message that is in no queue counts as failed, s; then of the delivered message, if any:
--         id, the document, when the event happened, ms, the number of its state in KEYS (0: the
--         message is deleted), the request to resend it or ''
-- RETURNS nothing
local id, state = ARGV[5], tonumber(ARGV[8])
local function is_queued(each)
  return redis.call('ZSCORE', KEYS[6], each) or redis.call('ZSCORE', KEYS[7], each)
end
-- Ignore the result if another replica has stored one, or an operator asked to resend the message.
local is_expected = id and (redis.call('HGET', KEYS[2], id) or '') == ARGV[9]
  and (ARGV[9] ~= '' or is_queued(id))
if is_expected then
  redis.call('HSET', KEYS[1], id, ARGV[6])
  if state ~= 3 then
    redis.call('HDEL', KEYS[2], id)
    for k = 3, 7 do redis.call('ZREM', KEYS[k], id) end
    if state == 0 then redis.call('HDEL', KEYS[1], id)
    else redis.call('ZADD', KEYS[state], ARGV[7], id) end
  end
end
local now = tonumber(redis.call('TIME')[1])
local lost = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', (now - ARGV[4]) * 1000, 'LIMIT', 0, 100)
for _, each in ipairs(lost) do
  if redis.call('HEXISTS', KEYS[2], each) == 0 and not is_queued(each) then
    redis.call('ZADD', KEYS[5], redis.call('ZSCORE', KEYS[3], each), each)
    redis.call('ZREM', KEYS[3], each)
  end
end
for k = 4, 5 do
  local function drop(ids)
    for _, each in ipairs(ids) do
      redis.call('ZREM', KEYS[k], each)
      redis.call('HDEL', KEYS[1], each)
    end
  end
  local expired_before = (now - ARGV[3]) * 1000
  drop(redis.call('ZRANGEBYSCORE', KEYS[k], '-inf', expired_before, 'LIMIT', 0, 100))
  local excess = redis.call('ZCARD', KEYS[k]) - ARGV[k - 3]
  if excess > 0 then drop(redis.call('ZRANGE', KEYS[k], 0, math.min(excess, 100) - 1)) end
end
for k = 1, 7 do redis.call('EXPIRE', KEYS[k], ARGV[3]) end
