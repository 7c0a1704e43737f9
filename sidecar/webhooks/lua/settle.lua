-- Writes what became of a message, and drops what is too old or too much.
-- KEYS    deliveries, resends, waiting, delivered, failed, events, calls, resending
-- ARGV    how many delivered and failed are kept; for how long, s; after how long a message in no
--         queue has failed, s; then, of the message that is settled, if any: id, the document, when
--         it happened, the number of its state in KEYS (0: it is forgotten), the request
-- RETURNS nothing
local id, state = ARGV[5], tonumber(ARGV[8])
local function is_queued(each)
  return redis.call('ZSCORE', KEYS[6], each) or redis.call('ZSCORE', KEYS[7], each)
end
-- Another replica may have settled it, and an operator have asked for it again.
local is_open = id and (redis.call('HGET', KEYS[2], id) or '') == ARGV[9]
  and (ARGV[9] ~= '' or is_queued(id))
if is_open then
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
  local old = (now - ARGV[3]) * 1000
  drop(redis.call('ZRANGEBYSCORE', KEYS[k], '-inf', old, 'LIMIT', 0, 100))
  local many = redis.call('ZCARD', KEYS[k]) - ARGV[k - 3]
  if many > 0 then drop(redis.call('ZRANGE', KEYS[k], 0, math.min(many, 100) - 1)) end
end
for k = 1, 7 do redis.call('EXPIRE', KEYS[k], ARGV[3]) end
