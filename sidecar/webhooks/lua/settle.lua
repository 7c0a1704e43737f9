-- Stores the result of an attempt to deliver a message. Then deletes messages that are too old or
-- over the limit.
-- KEYS    deliveries, resends, waiting, delivered, failed, events, calls, retries, failures,
--         resending
-- ARGV    1 how many delivered messages to keep
--         2 how many failed messages to keep
--         3 how long to keep messages, s
--         4 after how long a message that is in no queue counts as failed, s
--         5 how many failed attempts to keep
--         then, if there is a result:
--         6 the id of the message
--         7 its document
--         8 when the event happened, ms
--         9 the number of its new state in KEYS, or 0 to delete the message
--         10 the operator's request to resend the message, or ''
--         11 the failed attempt, or ''
--         12 when the failed attempt began, ms
--         13 when the next attempt is due, ms, if the message leaves its queue; else ''
-- RETURNS nothing
local id, state = ARGV[6], tonumber(ARGV[9])
local function is_queued(message_id)
  for k = 6, 8 do
    if redis.call('ZSCORE', KEYS[k], message_id) then return true end
  end
end
-- Ignore the result if another replica has stored one, or an operator has resent the message since.
local is_expected = id and (redis.call('HGET', KEYS[2], id) or '') == ARGV[10]
  and (ARGV[10] ~= '' or is_queued(id))
if is_expected then
  redis.call('HSET', KEYS[1], id, ARGV[7])
  if state == 4 then redis.call('DEL', KEYS[9])
  elseif ARGV[11] ~= '' then
    redis.call('ZADD', KEYS[9], ARGV[12], ARGV[11])
    redis.call('ZREMRANGEBYRANK', KEYS[9], ARGV[5], -1)
  end
  if state ~= 3 then
    redis.call('HDEL', KEYS[2], id)
    for k = 3, 8 do redis.call('ZREM', KEYS[k], id) end
    if state == 0 then redis.call('HDEL', KEYS[1], id)
    else redis.call('ZADD', KEYS[state], ARGV[8], id) end
  elseif ARGV[13] ~= '' then
    for k = 6, 7 do redis.call('ZREM', KEYS[k], id) end
    redis.call('ZADD', KEYS[8], ARGV[13], id)
  end
end
local now = tonumber(redis.call('TIME')[1])
local lost = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', (now - ARGV[4]) * 1000, 'LIMIT', 0, 100)
for _, lost_id in ipairs(lost) do
  if redis.call('HEXISTS', KEYS[2], lost_id) == 0 and not is_queued(lost_id) then
    redis.call('ZADD', KEYS[5], redis.call('ZSCORE', KEYS[3], lost_id), lost_id)
    redis.call('ZREM', KEYS[3], lost_id)
  end
end
for k = 4, 5 do
  local function delete_messages(ids)
    for _, message_id in ipairs(ids) do
      redis.call('ZREM', KEYS[k], message_id)
      redis.call('HDEL', KEYS[1], message_id)
    end
  end
  local expired_before = (now - ARGV[3]) * 1000
  delete_messages(redis.call('ZRANGEBYSCORE', KEYS[k], '-inf', expired_before, 'LIMIT', 0, 100))
  local excess = redis.call('ZCARD', KEYS[k]) - ARGV[k - 3]
  if excess > 0 then
    delete_messages(redis.call('ZRANGE', KEYS[k], 0, math.min(excess, 100) - 1))
  end
end
for k = 1, 9 do redis.call('EXPIRE', KEYS[k], ARGV[3]) end
