-- Checks which targets have work, for processes that may have missed a wake-up.
-- KEYS     for each target: state, line, later, active, ended (names and types: jobs/redis_keys.py)
-- ARGV     1 now, µs, or '' for Redis' own time; then for each target: 1 if the process has a
--          worker for its jobs
-- RETURNS  for each target: 1 if a job waits, is active or timed out, or if Redis was emptied
-- @include "limits/parts/head"
local KEYS_PER_TARGET = 5

local function run(KEYS, ARGV)
  begin(ARGV)
  local replies, states = {}, {}
  for i = 1, #KEYS, KEYS_PER_TARGET do
    local n, state = #replies + 1, KEYS[i]
    replies[n] = 1
    if redis_call('HGET', state, 'ready') then
      local count = 0
      for j = i + 1, i + KEYS_PER_TARGET - 1 do
        local key = KEYS[j]
        count = count + redis_call('ZCARD', key)
      end
      replies[n] = count > 0 and 1 or 0
      if ARGV[n + 1] == '1' then states[#states + 1] = state end
    end
  end
  -- pcall, because the check must also work if Redis is full or read-only.
  for _, state in ipairs(states) do
    redis.pcall('HSET', state, 'runner', string.format('%.0f', now))
  end
  return replies
end
