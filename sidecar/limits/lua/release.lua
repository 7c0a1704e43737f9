-- Releases permits: units of a concurrency limit at any time, the time of a paced call only while
-- that time is in the future. The next call of the same cost takes the time, unless the limit was
-- lowered since.
-- KEYS    for each permit: the set with the permit, the set of returned times, and the set that
--         shows whether the limit was lowered (for units, three times the same key)
-- ARGV    from 2 on, for each permit: its name, and its number of units (0: it has a time)
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
    local is_open = score and tonumber(score) > now
    if is_open and units > 0 then
      for unit = 1, units do redis_call('ZREM', key, permit .. '~' .. unit) end
    elseif is_open then
      redis_call('ZREM', key, permit)
      local lowered = tonumber(redis_call('ZSCORE', booked, 'lowered') or 0)
      if tonumber(score) > lowered then offer_returned(permit, score) end
    end
    replies[n] = is_open and 1 or 0
  end
  return replies
end
