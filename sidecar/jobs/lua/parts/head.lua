-- @include "limits/parts/head"
-- @include "visitors/members"
-- The beginning of every script of a target, after limits/parts/head.
-- KEYS     1 state  2 line  3 later  4 orders  5 active  6 facts  7 online  8 ended  9 reserved
--          10 aborts (names and types: jobs/redis_keys.py)
-- ARGV     2 the channel of the wake-ups  3 the target's name; the script's own from 4 on
-- RETURNS  now; then the script's own
local STATE, LINE, LATER, ORDERS, ACTIVE, FACTS, ONLINE, ENDED, RESERVED, ABORTS
local channel, target_name
-- The most members that one loop of a script touches; the next call does the rest.
local BOUND = 200

local function begin_target(KEYS, ARGV)
  begin(ARGV)
  STATE, LINE, LATER, ORDERS, ACTIVE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
  FACTS, ONLINE, ENDED, RESERVED, ABORTS = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
  channel, target_name = ARGV[2], ARGV[3]
end

-- A full store refuses a script whose first write may take room; later writes pass. Scripts that
-- renew or end something begin with this removal, so that they work in a full store.
local function begin_with_removal()
  redis_call('ZREM', RESERVED, '')
end

local function publish(text)
  redis_call('PUBLISH', channel, text)
end

local function wake_if_waiting()
  if redis_call('ZCARD', LINE) > 0 then publish(target_name) end
end

-- The fact of an active job: the fence of its lock or permit, a state (r: a worker has it, c: its
-- permit is unused, u: used), since when, µs, whether it is a trial, and which request used the
-- permit. All nil if there is none.
local function read_fact(text)
  local fence, word, began, trial, by = string.match(text or '', '^(%d+)~(%l)~(%d+)~(%d)~?(.*)$')
  return tonumber(fence or nil), word, tonumber(began or nil), trial == '1', by
end

local function fact(fence, word, began, is_trial, by)
  return int(fence) .. '~' .. word .. '~' .. int(began) .. (is_trial and '~1' or '~0')
    .. (by and '~' .. by or '')
end

-- Makes jobs inactive. Those that leave for good are to be forgotten, too.
local function drop(jobs)
  queue.write_all('ZREM', ACTIVE, jobs)
  queue.write_all('HDEL', FACTS, jobs)
end

local function forget(jobs)
  queue.write_all('HDEL', ORDERS, jobs)
  queue.write_all('SREM', ONLINE, jobs)
  queue.write_all('SREM', ABORTS, jobs)
end
