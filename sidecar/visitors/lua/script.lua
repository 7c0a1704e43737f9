-- The start of every script. A library of Redis Functions is loaded once and called many times, so
-- the product's begin() resets the locals that hold the state of a call.
-- If Redis is full or read-only, the first write of a script fails and nothing is changed; later
-- writes of the same call never fail.

-- redis.call. begin() sets it, because redis.call is not available while a library is loaded.
local redis_call
-- Functions that all queues share. They are fields, because a library may have only 200 locals.
local queue = {}

-- Returns a whole number as a string. tostring() would round a number of more than 14 digits.
-- Arguments of redis.call do not need this.
local function int(number)
  return string.format('%d', number)
end

-- Returns Redis' time, µs.
function queue.time_us()
  local time = redis_call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- Returns the members of a reply WITHSCORES, and their scores as strings.
function queue.split(rows)
  local members, scores = {}, {}
  for i = 1, #rows, 2 do
    members[#members + 1], scores[#scores + 1] = rows[i], rows[i + 1]
  end
  return members, scores
end

function queue.write_all(command, key, words)
  if #words > 0 then redis_call(command, key, unpack(words)) end
end
