-- Of which targets there is anything to do, for those who have heard nothing of them.
-- KEYS     for each target: state, line, later, active, ended (names and types: jobs/redis_keys.py)
-- ARGV     1 now, or '' for the store's own time; then for each 1: a runner asks for its jobs
-- RETURNS  for each 1: somebody waits, is called or is over, or the store is new
-- @include "limits/parts/head"
local EACH = 5

local function run(KEYS, ARGV)
  begin(ARGV)
  local replies, asked = {}, {}
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
      if ARGV[n + 1] == '1' then asked[#asked + 1] = state end
    end
  end
  -- A full store, or one that is read only, is looked at all the same.
  for _, state in ipairs(asked) do
    redis.pcall('HSET', state, 'runner', string.format('%.0f', now))
  end
  return replies
end
