-- Enforces max_places_per_address. The sorted set `addresses` has a member `address~visitor` for
-- the IP address from which a visitor joined. Members of visitors who have left are removed on use.

-- Returns whether a visitor still counts towards the limit of the IP address.
local function counts_for_address(visitor)
  if redis_call('ZSCORE', DUE, visitor) or redis_call('ZSCORE', ACTIVE, visitor) then
    return true
  end
  -- An expired place of the pre-queue counts, because it can be restored with its lot. A place that
  -- the visitor gave up does not count.
  return phase == PREQUEUE and stats.drawn_from == event_begins
    and redis_call('ZSCORE', DRAWN, visitor) and not redis_call('ZSCORE', SPENT, visitor)
end

-- Returns how many places and sessions an IP address has, and removes members that no longer count.
-- Each address is counted once in a batch.
local function count_places_of(address)
  local counts = cache.counts or {}
  cache.counts = counts
  if counts[address] then return counts[address] end
  flush()
  local places = 0
  local members = redis_call('ZRANGEBYLEX', ADDRESSES, '[' .. address .. '~',
    '(' .. address .. '\127', 'LIMIT', 0, LOOP_LIMIT)
  for _, member in ipairs(members) do
    if counts_for_address(string.sub(member, #address + 2)) then
      places = places + 1
    else
      redis_call('ZREM', ADDRESSES, member)
    end
  end
  counts[address] = places
  return places
end

local function has_max_places(address)
  if not room.max_places_per_address or address == '' then return false end
  return count_places_of(address) >= room.max_places_per_address
end

local function store_address(address, visitor)
  if not room.max_places_per_address or address == '' then return end
  local places = count_places_of(address)
  cache.counts[address] = places + 1
  redis_call('ZADD', ADDRESSES, 0, address .. '~' .. visitor)
end

-- Checks the next `limit` members of `addresses` and removes those that no longer count. Returns
-- whether there are more to check.
local function remove_addresses(limit)
  local from = stats.address_at or 0
  local members = redis_call('ZRANGE', ADDRESSES, int(from), int(from + limit - 1))
  local old_members = {}
  for _, member in ipairs(members) do
    local visitor = string.match(member, '~(.*)$')
    if not counts_for_address(visitor) then old_members[#old_members + 1] = member end
  end
  if #old_members > 0 then redis_call('ZREM', ADDRESSES, unpack(old_members)) end
  local has_more = #members == limit
  stats.address_at = has_more and from + #members - #old_members or 0
  return has_more
end
