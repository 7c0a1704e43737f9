-- Releases permits of concurrency, and permits of paced calls whose time is in the future. The next
-- call of the same cost takes this time, unless the limit was lowered meanwhile.
-- KEYS    for each permit: the set that has the permit, free, booked. For concurrency, each of the
--         three is the state
-- ARGV    from 2 on, for each permit: the permit, and its cost (0 if it is of a paced call)
-- RETURNS for each permit 1 if it was released, else 0
-- @include "limits/parts/returned_times"

local function run(KEYS, ARGV)
  begin(ARGV)
  local replies = {}
  for n = 1, #KEYS / 3 do
    local key, booked = KEYS[3 * n - 2], KEYS[3 * n]
    free = KEYS[3 * n - 1]
    local permit, units = ARGV[2 * n], tonumber(ARGV[2 * n + 1])
    local score = redis_call('ZSCORE', key, units > 0 and permit .. '~1' or permit)
    local is_valid = score and tonumber(score) > now
    if is_valid and units > 0 then
      for unit = 1, units do redis_call('ZREM', key, permit .. '~' .. unit) end
    elseif is_valid then
      redis_call('ZREM', key, permit)
      local lowered = tonumber(redis_call('ZSCORE', booked, 'lowered') or 0)
      if tonumber(score) > lowered then store_returned_time(permit, score) end
    end
    replies[n] = is_valid and 1 or 0
  end
  return replies
end
