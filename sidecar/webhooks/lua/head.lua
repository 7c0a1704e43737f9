-- Finds the first message of a queue, if the replica holds the leader lease.
-- KEYS    deliveries, resends, waiting, delivered, failed, events, calls, retries, failures,
--         resending
-- ARGV    1 the replica
--         2 the number of the queue in KEYS (2: messages to resend)
--         3 the time, ms, or '' for the time of Redis
-- RETURNS an empty list if the queue is empty or the replica does not hold the lease; else
--         1 the id of the message
--         2 its document, or ''
--         3 an operator's request to resend the message, or ''
--         4 the time, ms
if redis.call('GET', KEYS[10]) ~= ARGV[1] then return {} end
local queue_number, id, first_at = tonumber(ARGV[2]), nil, nil
if queue_number == 2 then
  for _, resent_id in ipairs(redis.call('HKEYS', KEYS[2])) do
    local at = tonumber(redis.call('ZSCORE', KEYS[3], resent_id) or 0)
    if not first_at or at < first_at then id, first_at = resent_id, at end
  end
else
  id = redis.call('ZRANGE', KEYS[queue_number], 0, 0)[1]
end
if not id then return {} end
local time = redis.call('TIME')
local now = ARGV[3] ~= '' and ARGV[3] or time[1] * 1000 + math.floor(time[2] / 1000)
local request = redis.call('HGET', KEYS[2], id) or ''
return {id, redis.call('HGET', KEYS[1], id) or '', request, now}
