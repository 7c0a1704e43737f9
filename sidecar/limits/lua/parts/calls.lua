-- @include "limits/parts/permits"
-- @include "limits/parts/present"
-- Every algorithm has, for the key `state`:
--   load() the last moment that it promised, and whether to a call that was to wait for it
--   find(cost, limit, base, permit) the first moment >= base at which so much may go, what is in
--     use then with it, of how much, when all is free again; nil: never. Cost 0: how things stand
--   take(at, in use, cost, permit) promises what was found; save(ends) writes it
local saved_until

local function standing(limit)
  if limit == 0 then return 0, now end
  local at, after, size, ends = find(0, limit, base)
  return at <= present and math.max(0, math.floor(size - after)) or 0, ends
end

local function answer(cost, id, limit)
  local permit = id ~= '' and int(cost) .. '~' .. id or nil
  local known = recall(permit, id)
  if known then
    local left, ends = standing(limit)
    return known, known <= now and left or 0, ends
  end
  local at, after, size, ends = find(cost, limit, base, permit)
  if not at then
    local _, free_again = standing(limit)
    return 0, -1, free_again
  end
  local i, moment = freed_for(cost)
  at = moment or at
  if at - present > MAX_WAIT then
    local _, free_again = standing(limit)
    return at - MAX_WAIT, -1, free_again
  end
  if LOOKS then
    local left, free_again = standing(limit)
    return at <= present and now or at, at <= present and left or 0, free_again
  end
  local left
  if i then
    take_freed(i)
    left, ends = standing(limit)
  else
    take(at, after, cost, permit)
    base, saved_until = math.max(base, at), ends
    left = at <= present and math.max(0, math.floor(size - after)) or 0
  end
  if at <= present then at = now end
  remember(permit, id, at)
  return at, left, ends
end

local function run(KEYS, ARGV)
  begin_batch(KEYS, ARGV)
  local limits = redis_call('HMGET', VALUES, unpack(ARGV, 9, 8 + COUNT))
  local replies, word = {now}, 9 + COUNT
  for n = 1, COUNT do
    local key = 1 + (n - 1) * WIDTH
    state, permits = KEYS[key + 1], WIDTH > 1 and KEYS[key + 2]
    free, booked = WIDTH > 2 and KEYS[key + 3], WIDTH > 2 and KEYS[key + 4]
    local limit, calls = tonumber(limits[n] or ARGV[word]), tonumber(ARGV[word + 1])
    replies[#replies + 1] = limit
    word = word + 2
    open_permits()
    if limit >= 0 then begin_after(load()) else begin_after(0) end
    saved_until = nil
    for _ = 1, calls do
      local at, left, ends = 0, 0, 0
      if limit >= 0 then
        at, left, ends = answer(tonumber(ARGV[word]), WORDS > 1 and ARGV[word + 1] or '', limit)
      end
      local i = #replies
      replies[i + 1], replies[i + 2], replies[i + 3] = at, left, ends
      word = word + WORDS
    end
    if saved_until then save(saved_until) end
    close_permits()
  end
  return replies
end
