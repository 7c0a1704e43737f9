-- Stores how one replica has decided on the calls of one minute. Replaces the counts that the
-- replica has stored for this minute before, and removes counts and keys that are too old.
-- KEYS    1 recent
-- ARGV    2 the minute  3 the replica  4 its counts  5 the keys that it refused most, or ''
--         6 for how many minutes counts are kept  7 for how many minutes keys are kept
-- RETURNS nothing
-- @include "limits/parts/head"
local function run(KEYS, ARGV)
  begin(ARGV)
  local RECENT = KEYS[1]
  local field, minute = ARGV[2] .. ' ' .. ARGV[3], math.floor(now / 60000000)
  local is_new = redis_call('HSET', RECENT, field, ARGV[4]) == 1
  if ARGV[5] ~= '' then redis_call('HSET', RECENT, field .. ' keys', ARGV[5]) end
  if not is_new then return end
  extend_expiry(RECENT, now + tonumber(ARGV[6]) * 60000000)
  local old = {}
  for _, name in ipairs(redis_call('HKEYS', RECENT)) do
    local kept = tonumber(string.find(name, ' keys', 1, true) and ARGV[7] or ARGV[6])
    if tonumber(string.match(name, '^%d+')) <= minute - kept then old[#old + 1] = name end
  end
  queue.write_all('HDEL', RECENT, old)
end
