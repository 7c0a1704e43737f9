-- Acknowledges events that are in the database, and trims the stream up to a given event, but not
-- beyond the last event that was read for webhooks.
-- KEYS    events, called (the id of the last event that was read for webhooks, if known)
-- ARGV    1 the consumer group
--         2 the id of the last event to trim
--         3 and later: the ids of the events to acknowledge
-- RETURNS how many events were trimmed
if ARGV[3] then redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, 3)) end
local function split(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end
local ms, seq = split(ARGV[2])
local read = redis.call('GET', KEYS[2])
if read then
  local read_ms, read_seq = split(read)
  if read_ms < ms or (read_ms == ms and read_seq < seq) then ms, seq = read_ms, read_seq end
end
return redis.call('XTRIM', KEYS[1], 'MINID', string.format('%.0f-%.0f', ms, seq + 1))
