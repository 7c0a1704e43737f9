-- Lists the limits that were set or reset at run time.
-- KEYS    1 values  2 revisions  3 digest
-- ARGV    2 the revision after which to begin  3 how many changes to list at most
-- RETURNS the digest
--         the number of values
--         how many changes are listed
--         then for each change, by revision: the rate-limited key, its limit ('': reset), the
--         revision
-- @include "limits/parts/revisions"
local function run(KEYS, ARGV)
  begin(ARGV)
  local values, revisions, digest = KEYS[1], KEYS[2], KEYS[3]
  local names, scores = queue.split(redis_call('ZRANGEBYSCORE', revisions, '(' .. ARGV[2], '+inf',
    'WITHSCORES', 'LIMIT', 0, ARGV[3]))
  local reply = {tonumber(redis_call('GET', digest) or 0), redis_call('HLEN', values), #names}
  local limits = #names > 0 and redis_call('HMGET', values, unpack(names))
  for i, name in ipairs(names) do
    reply[#reply + 1], reply[#reply + 2] = name, limits[i] or ''
    reply[#reply + 1] = tonumber(scores[i])
  end
  return reply
end
