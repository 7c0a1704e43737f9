-- What every script starts with. As Redis Functions all of this is loaded once and called often:
-- what a call knows is in locals that begin() of its product sets anew, and nothing may be left of
-- one call to the next.
-- Where the store is full or read-only, the first write of a script fails, and nothing was changed;
-- those that follow never do.
-- Not to be had while a library is loaded: taken by begin().
local redis_call
-- What queues share. Fields, for a library has 200 locals at most.
local queue = {}

-- A whole number as text; tostring() would round one of more than 14 digits. An argument of
-- redis.call needs it not.
local function int(number)
  return string.format('%d', number)
end

-- The store's own time.
function queue.time_us()
  local time = redis_call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- The members of a reply WITHSCORES, and their scores as text.
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
