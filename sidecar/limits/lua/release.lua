-- Gives permits back: units at any time, a moment only if it is in the future. The next call of the
-- same cost takes the moment, unless the limit was lowered since.
-- KEYS    for each permit: the set with the permit, the set of free moments, and the set that tells
--         whether the limit was lowered (units: three times the same)
-- ARGV    from 2 on, for each: the permit, and its number of units (0: it has a moment)
-- RETURNS for each whether it was given back, 1 or 0
-- @include "limits/parts/head"
local function offer(free, permit, score)
  redis_call('ZREMRANGEBYSCORE', free, '-inf', '(' .. int(now))
  local member = permit -- this permit may have given back another moment, which is still free
  while redis_call('ZADD', free, 'NX', score, member) == 0 do member = member .. '~' end
  keep(free, tonumber(score))
end

local function run(KEYS, ARGV)
  begin(ARGV)
  local replies = {}
  for n = 1, #KEYS / 3 do
    local key, free, booked = KEYS[3 * n - 2], KEYS[3 * n - 1], KEYS[3 * n]
    local permit, units = ARGV[2 * n], tonumber(ARGV[2 * n + 1])
    local score = redis_call('ZSCORE', key, units > 0 and permit .. '~1' or permit)
    local is_open = score and tonumber(score) > now
    if is_open and units > 0 then
      for unit = 1, units do redis_call('ZREM', key, permit .. '~' .. unit) end
    elseif is_open then
      redis_call('ZREM', key, permit)
      local lowered = tonumber(redis_call('ZSCORE', booked, 'lowered') or 0)
      if tonumber(score) > lowered then offer(free, permit, score) end
    end
    replies[n] = is_open and 1 or 0
  end
  return replies
end
