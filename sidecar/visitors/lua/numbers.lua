-- @include "visitors/script"
-- What a script remembers in a hash, as numbers by name.

-- As they are stored, in the order of the names, and the same by name, to be changed.
function queue.load_numbers(key, names)
  local loaded, numbers = redis_call('HMGET', key, unpack(names)), {}
  for i, name in ipairs(names) do
    loaded[i] = tonumber(loaded[i] or nil)
    numbers[name] = loaded[i]
  end
  return loaded, numbers
end

-- Fields and values of those that differ from what was loaded, with all their digits.
function queue.changed_numbers(names, loaded, numbers)
  local fields = {}
  for i, name in ipairs(names) do
    if numbers[name] ~= loaded[i] then
      fields[#fields + 1], fields[#fields + 2] = name, string.format('%.17g', numbers[name])
    end
  end
  return fields
end

-- The next of numbers that only grow, whatever the clock does.
function queue.next_number(last, now_us)
  return math.max(now_us, (last or 0) + 1)
end
