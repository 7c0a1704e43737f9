-- @include "limits/parts/head"
-- @include "visitors/numbers"
-- Stores the limits that were set at run time. Each change has a revision, a number that grows with
-- each change. A reset is a change too, so that no replica restores the value from before it. The
-- digest is the sum of all keys' revisions. Each replica compares this digest with the digest of
-- the changes that the replica remembers.
-- KEYS  1 values  2 revisions  3 digest
local MODULUS = 2 ^ 50 -- sums stay exact

local function add_to_digest(digest, number)
  redis_call('SET', digest, int((tonumber(redis_call('GET', digest) or 0) + number) % MODULUS))
end

-- Returns a revision above all others, and above `known_revision`.
local function next_revision(revisions, known_revision)
  local last = redis_call('ZRANGE', revisions, '-1', '-1', 'WITHSCORES')[2]
  return queue.next_number(math.max(tonumber(last or 0), known_revision), now)
end

-- Writes the value of a key, or removes it if the value is ''.
local function write_value(KEYS, name, value, revision, old_revision)
  local values, revisions, digest = KEYS[1], KEYS[2], KEYS[3]
  if value == '' then
    redis_call('HDEL', values, name)
  else
    redis_call('HSET', values, name, value)
  end
  redis_call('ZADD', revisions, int(revision), name)
  add_to_digest(digest, revision - old_revision)
end
