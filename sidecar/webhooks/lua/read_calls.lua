-- Reads a page of a room's event stream and returns the calls in it: the events of visitors who
-- were called.
-- KEYS    events, stats, calls, called
-- ARGV    1 the id of the event after which to read, or '' to get only the id of the last event
--         2 the id of the last event whose calls are stored, or ''
--         3 how many events to read
--         4 how long the recorder of the history keeps events for the next read, s
--         5 how long the cursor in calls lives, s
-- RETURNS 1 the id of the last event read
--         2 whether this is the last event of the stream
--         3 the calls
--         4 how many calls the room has ever made
--         5 whether the event after which to read was trimmed from the stream
local after, stored_until = ARGV[1], ARGV[2]
local total_calls = redis.call('HGET', KEYS[2], 'called') or '0'
if after == '' then
  local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
  return {last and last[1] or '0-0', 1, {}, total_calls, 0}
end
if stored_until ~= '' then
  redis.call('SET', KEYS[4], stored_until, 'EX', ARGV[4])
  redis.call('EXPIRE', KEYS[3], ARGV[5])
end
local rows = redis.call('XRANGE', KEYS[1], '(' .. after, '+', 'COUNT', ARGV[3])
local calls, last = {}, after
for _, row in ipairs(rows) do
  last = row[1]
  if row[2][1] == 'kind' and row[2][2] == 'called' then calls[#calls + 1] = row end
end
local is_gone = after ~= '0-0' and #redis.call('XRANGE', KEYS[1], after, after) == 0
return {last, #rows < tonumber(ARGV[3]) and 1 or 0, calls, total_calls, is_gone and 1 or 0}
