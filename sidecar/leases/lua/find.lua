-- Finds, among the given resources, those where one of the given holders has a lease, a reservation
-- or a place in the queue, and those with a lease that has the given fencing number. Changes
-- nothing.
-- ARGV    after the resources' names: the fencing number or '', then the names of the holders
-- RETURNS {now, {the names of the found resources}}
-- @include "leases/parts/template"

-- Returns whether a sorted set has one of these members.
local function has_member(key, names)
  for _, score in ipairs(redis_call('ZMSCORE', key, unpack(names))) do
    if score then return true end
  end
  return false
end

-- Returns whether a lease in the hash `facts` has this fencing number.
local function has_fence(facts, fence)
  if fence == '' then return false end
  for _, fact in ipairs(redis_call('HVALS', facts)) do
    if string.sub(fact, 1, #fence + 1) == fence .. ' ' then return true end
  end
  return false
end

local function run(KEYS, ARGV)
  read_template(KEYS, ARGV)
  local fence, names = ARGV[last_name_index + 1], {unpack(ARGV, last_name_index + 2)}
  local matching_names = {}
  for i = 1, last_name_index - 4 do
    local key = 4 * i
    if has_member(KEYS[key], names) or has_member(KEYS[key + 2], names)
      or has_fence(KEYS[key + 1], fence) then
      matching_names[#matching_names + 1] = ARGV[4 + i]
    end
  end
  return {now, matching_names}
end
