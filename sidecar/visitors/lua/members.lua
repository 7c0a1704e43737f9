-- @include "visitors/script"
-- A queue is a sorted set of orders; beside it are sets by moments: who is inside until when, and
-- when the next heartbeat of those who wait is due.

-- Who is over by now, at most so many, and the moments as text.
function queue.over_by(now, key, most)
  return queue.split(
    redis_call('ZRANGEBYSCORE', key, '-inf', int(now), 'WITHSCORES', 'LIMIT', 0, most))
end

-- Takes the heads out of a queue, at most so many. Who they are, their orders as text, and how many
-- it tried to take: fewer means nobody is left.
function queue.pop_heads(key, most)
  local members, orders = queue.split(redis_call('ZPOPMIN', key, most))
  return members, orders, most
end

-- Their scores as text, false where there is none.
function queue.scores_of(key, members)
  if #members == 1 then return {redis_call('ZSCORE', key, members[1])} end
  return redis_call('ZMSCORE', key, unpack(members))
end

-- The same of members who are taken out.
function queue.pop_scores(key, members)
  local scores = redis_call('ZMSCORE', key, unpack(members))
  redis_call('ZREM', key, unpack(members))
  return scores
end

-- When the first is over; math.huge if there is none.
function queue.first_moment(key)
  return tonumber(redis_call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or math.huge)
end
