-- Reads a page of a room's event stream for the calls in it.
-- KEYS    events, stats, calls, called
-- ARGV    the event to read after, '': the end; how far was read and noted, or ''; how many events;
--         how long the recorder waits, s; how long the cursor is kept, s
-- RETURNS how far it has read; whether that is the end; the calls; how many calls there ever were;
--         whether the event to read after is gone
local from, noted = ARGV[1], ARGV[2]
local ever = redis.call('HGET', KEYS[2], 'called') or '0'
if from == '' then
  local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
  return {last and last[1] or '0-0', 1, {}, ever, 0}
end
if noted ~= '' then
  redis.call('SET', KEYS[4], noted, 'EX', ARGV[4])
  redis.call('EXPIRE', KEYS[3], ARGV[5])
end
local rows = redis.call('XRANGE', KEYS[1], '(' .. from, '+', 'COUNT', ARGV[3])
local calls, last = {}, from
for _, row in ipairs(rows) do
  last = row[1]
  if row[2][1] == 'kind' and row[2][2] == 'called' then calls[#calls + 1] = row end
end
local is_gone = from ~= '0-0' and #redis.call('XRANGE', KEYS[1], from, from) == 0
return {last, #rows < tonumber(ARGV[3]) and 1 or 0, calls, ever, is_gone and 1 or 0}
