-- Defines what all scripts need. A library of Redis Functions is loaded once and called many times,
-- so begin(), which each feature defines, must set the locals that belong to one call. If Redis is
-- full or read-only, the first write of a script fails, and nothing is changed. If the first write
-- succeeds, the later writes of the same call succeed too.

-- This is redis.call. begin() sets it, because redis.call is not available while a library loads.
local redis_call
-- The functions that all queues share. They are fields of a table, because a library can have only
-- 200 local variables.
local queue = {}

-- Returns a whole number as a string, without rounding; tostring() rounds to 14 digits. Numbers
-- that are arguments of redis.call do not need this.
local function int(number)
  return string.format('%d', number)
end

-- Returns the time by the clock of Redis, in µs.
function queue.time_us()
  local time = redis_call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- Splits the reply of a command with WITHSCORES into the members and their scores as strings.
function queue.split(rows)
  local members, scores = {}, {}
  for i = 1, #rows, 2 do
    members[#members + 1], scores[#scores + 1] = rows[i], rows[i + 1]
  end
  return members, scores
end

-- Calls a command with all arguments, unless there are none.
function queue.write_all(command, key, arguments)
  if #arguments > 0 then redis_call(command, key, unpack(arguments)) end
end
