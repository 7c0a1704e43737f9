-- @include "visitors/script"
-- Reads the numbers in a hash by their field names, and finds those that a script has changed.

-- Returns the stored numbers as a list in the order of `names`, and as a table by name. A script
-- changes the table, and then writes what queue.changed_numbers() returns.
function queue.load_numbers(key, names)
  local loaded, by_name = redis_call('HMGET', key, unpack(names)), {}
  for i, name in ipairs(names) do
    loaded[i] = tonumber(loaded[i] or nil)
    by_name[name] = loaded[i]
  end
  return loaded, by_name
end

-- Returns the names and values of the changed numbers, for HSET. With 17 digits, values are exact.
function queue.changed_numbers(names, loaded, by_name)
  local fields = {}
  for i, name in ipairs(names) do
    if by_name[name] ~= loaded[i] then
      fields[#fields + 1], fields[#fields + 2] = name, string.format('%.17g', by_name[name])
    end
  end
  return fields
end

-- Returns `now_us`, or `last` + 1 if `now_us` is not greater than `last`.
function queue.next_number(last, now_us)
  return math.max(now_us, (last or 0) + 1)
end
