-- Reads whether the messages of a webhook are delivered.
-- KEYS    deliveries, resends, waiting, delivered, failed, events, calls, retries, failures,
--         resending
-- RETURNS 1 how many messages are waiting, delivered and failed
--         2 how many failed attempts are stored since the last delivered message
--         3 when the first of these attempts began, ms, or ''
--         4 when the event of the oldest waiting message happened, ms, or ''; messages that an
--           operator resends do not count
--         5 the time, ms
local oldest = ''
for _, id in ipairs(redis.call('ZRANGE', KEYS[3], 0, 99)) do
  if redis.call('HEXISTS', KEYS[2], id) == 0 then
    oldest = redis.call('ZSCORE', KEYS[3], id)
    break
  end
end
local counts = {}
for k = 3, 5 do counts[k - 2] = redis.call('ZCARD', KEYS[k]) end
local first = redis.call('ZRANGE', KEYS[9], 0, 0, 'WITHSCORES')[2] or ''
local time = redis.call('TIME')
return {counts, redis.call('ZCARD', KEYS[9]), first, oldest,
  time[1] * 1000 + math.floor(time[2] / 1000)}
