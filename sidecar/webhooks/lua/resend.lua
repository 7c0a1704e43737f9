-- Stores an operator's request to resend messages, or to send a new one.
-- KEYS    deliveries, resends, waiting, delivered, failed, events, calls, retries, failures,
--         resending
-- ARGV    1 the request
--         2 the number of attempts that a message must have had, or '' for any number
--         3 how long the keys live, s
--         4 the document of a new message, or ''
--         5 when the event of the new message happened, ms
--         6 and later: the ids of the messages
-- RETURNS for each id: unknown, waiting, changed (the number of attempts differs) or queued
local replies = {}
for i = 6, #ARGV do
  local id = ARGV[i]
  local document, at = redis.call('HGET', KEYS[1], id), ARGV[5]
  for k = 4, 5 do at = redis.call('ZSCORE', KEYS[k], id) or at end
  if not document and ARGV[4] == '' then
    replies[#replies + 1] = 'unknown'
  elseif redis.call('ZSCORE', KEYS[3], id) then
    replies[#replies + 1] = 'waiting'
  elseif ARGV[2] ~= '' and cjson.decode(document).attempts ~= tonumber(ARGV[2]) then
    replies[#replies + 1] = 'changed'
  else
    redis.call('HSET', KEYS[2], id, ARGV[1])
    if not document then redis.call('HSET', KEYS[1], id, ARGV[4]) end
    redis.call('ZADD', KEYS[3], at, id)
    for k = 4, 5 do redis.call('ZREM', KEYS[k], id) end
    replies[#replies + 1] = 'queued'
  end
end
for k = 1, 3 do redis.call('EXPIRE', KEYS[k], ARGV[3]) end
return replies
