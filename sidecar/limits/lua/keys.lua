-- Keys of the store by a pattern, a bounded part of them. In a cluster those of the limit's node.
-- KEYS    1 values
-- ARGV    1 where to go on, or 0 2 the pattern 3 how many to look at, roughly
-- RETURNS {where to go on, or 0: that is all, the keys}
local function run(KEYS, ARGV)
  return redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
end
