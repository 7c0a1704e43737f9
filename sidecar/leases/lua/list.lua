-- Who holds the resources, and how many wait. Changes nothing.
-- RETURNS {now, for each: {name, how many wait, {holder, when the lease or the turn ends, fencing
--          number and beginning with a space between, '' where it is their turn, …}}}
-- @include "leases/parts/template"
local function run(KEYS, ARGV)
  begin_template(KEYS, ARGV)
  local rows = {}
  for i = 1, named - 4 do
    local key = 4 * i
    local names, ends = queue.split(
      redis_call('ZRANGEBYSCORE', KEYS[key], '(' .. int(now), '+inf', 'WITHSCORES'))
    local row = {}
    local facts = #names > 0 and redis_call('HMGET', KEYS[key + 1], unpack(names)) or {}
    for j, name in ipairs(names) do
      row[#row + 1], row[#row + 2], row[#row + 3] = name, ends[j], facts[j] or ''
    end
    rows[i] = {ARGV[4 + i], redis_call('ZCARD', KEYS[key + 2]), row}
  end
  return {now, rows}
end
