-- @include "visitors/script"
-- Numbers that a script keeps in a hash, by name.

-- Returns the stored numbers in the order of the names, and a table of them by name to change.
function queue.load_numbers(key, names)
  local loaded, numbers = redis_call('HMGET', key, unpack(names)), {}
  for i, name in ipairs(names) do
    loaded[i] = tonumber(loaded[i] or nil)
    numbers[name] = loaded[i]
  end
  return loaded, numbers
end

-- Returns the fields and values of changed numbers, with all their digits.
function queue.changed_numbers(names, loaded, numbers)
  local fields = {}
  for i, name in ipairs(names) do
    if numbers[name] ~= loaded[i] then
      fields[#fields + 1], fields[#fields + 2] = name, string.format('%.17g', numbers[name])
    end
  end
  return fields
end

-- Returns a number later than the last one, whatever the clock does.
function queue.next_number(last, now_us)
  return math.max(now_us, (last or 0) + 1)
end
