-- @include "visitors/script"
-- Reads and writes numbers in a hash, by field name.

-- Returns the stored numbers in the order of `names`, and a table of them by name. The script
-- changes the table and writes what queue.changed_numbers() returns.
function queue.load_numbers(key, names)
  local loaded, by_name = redis_call('HMGET', key, unpack(names)), {}
  for i, name in ipairs(names) do
    loaded[i] = tonumber(loaded[i] or nil)
    by_name[name] = loaded[i]
  end
  return loaded, by_name
end

-- Returns the names and values of the numbers that changed, for HSET. 17 digits lose nothing.
function queue.changed_numbers(names, loaded, by_name)
  local fields = {}
  for i, name in ipairs(names) do
    if by_name[name] ~= loaded[i] then
      fields[#fields + 1], fields[#fields + 2] = name, string.format('%.17g', by_name[name])
    end
  end
  return fields
end

-- Returns a number greater than the last one, even if the clock jumped back.
function queue.next_number(last, now_us)
  return math.max(now_us, (last or 0) + 1)
end
