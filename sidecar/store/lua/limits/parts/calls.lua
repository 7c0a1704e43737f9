-- @include "limits/parts/permits"
-- Every algorithm has, for the key `state`:
--   load() the last moment that it promised, and whether to a call that was to wait for it
--   find(cost, limit, base, permit) the first moment >= base at which so much may go, what is in
--     use then with it, of how much, when all is free again; nil: never. Cost 0: how things stand
--   take(at, in use, cost, permit) promises what was found; save(ends) writes it
-- A clock that went back by so little is taken to stand still: nothing more is granted by that, and
-- nobody refused for it. (Where the rule paces, or did, the last moment may well be to come.)
local BACK = 1000000
local present, base, saved_until

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
  if LOOKS or at - present > MAX_WAIT then
    local left, free_again = standing(limit)
    return at <= present and now or at - MAX_WAIT, at <= present and left or -1, free_again
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

local function answers()
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
    local last, is_paced = 0, false
    if limit >= 0 then last, is_paced = load() end
    local is_back = last > now and last - now <= BACK and not (free or is_paced)
    present = is_back and last or now
    base, saved_until = math.max(present, last), nil
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
