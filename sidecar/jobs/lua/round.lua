-- Tells which targets have something to do, for processes that heard nothing of them.
-- KEYS     for each target: state, line, later, active, ended (names and types: jobs/redis_keys.py)
-- ARGV     1 now, or '' for the store's own time; then for each 1: a worker asks for its jobs
-- RETURNS  for each 1: a job waits, is called or has ended, or the store is new
-- @include "limits/parts/head"
local EACH = 5

local function run(KEYS, ARGV)
  begin(ARGV)
  local replies, states = {}, {}
  for i = 1, #KEYS, EACH do
    local n, state = #replies + 1, KEYS[i]
    replies[n] = 1
    if redis_call('HGET', state, 'ready') then
      local count = 0
      for j = i + 1, i + EACH - 1 do
        local key = KEYS[j]
        count = count + redis_call('ZCARD', key)
      end
      replies[n] = count > 0 and 1 or 0
      if ARGV[n + 1] == '1' then states[#states + 1] = state end
    end
  end
  -- pcall: a full or read-only store is looked at all the same.
  for _, state in ipairs(states) do
    redis.pcall('HSET', state, 'runner', string.format('%.0f', now))
  end
  return replies
end
