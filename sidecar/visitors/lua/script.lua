-- The start of every script. A library of Redis Functions is loaded once and called often: the
-- state of a call is in locals that the product's begin() sets anew; nothing is left for the next.
-- If Redis is full or read-only, the first write of a script fails and nothing is changed; later
-- writes of the same call never fail.
-- redis.call, set by begin(): a library cannot have it while it is loaded.
local redis_call
-- Functions that queues share; fields, because a library has 200 locals at most.
local queue = {}

-- Returns a whole number as text; tostring() would round one of more than 14 digits. Arguments of
-- redis.call do not need it.
local function int(number)
  return string.format('%d', number)
end

-- Returns Redis' time.
function queue.time_us()
  local time = redis_call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- Returns the members of a reply WITHSCORES, and their scores as text.
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
