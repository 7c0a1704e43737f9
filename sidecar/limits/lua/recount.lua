-- Gives a new revision to each value that has none, because an earlier version wrote the value, and
-- computes the digest again, because Redis may have lost it.
-- KEYS    1 values  2 revisions  3 digest
-- ARGV    2 the highest revision that the replica knows
-- RETURNS nothing
-- @include "limits/parts/revisions"
local function run(KEYS, ARGV)
  begin(ARGV)
  local values, revisions, digest = KEYS[1], KEYS[2], KEYS[3]
  for _, name in ipairs(redis_call('HKEYS', values)) do
    if not redis_call('ZSCORE', revisions, name) then
      redis_call('ZADD', revisions, int(next_revision(revisions, tonumber(ARGV[2]))), name)
    end
  end
  local sum = 0
  local _, scores = queue.split(redis_call('ZRANGE', revisions, '0', '-1', 'WITHSCORES'))
  for _, score in ipairs(scores) do sum = (sum + tonumber(score)) % MODULUS end
  redis_call('SET', digest, int(sum))
end
