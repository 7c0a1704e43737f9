-- @include "visitors/script"
-- A queue is a sorted set of orders. Beside it are sorted sets of moments: when each session ends,
-- and when the next heartbeat of each waiting visitor is due.

-- Returns the members whose moment has passed, `most` at most, and the moments as text.
function queue.over_by(now, key, most)
  return queue.split(
    redis_call('ZRANGEBYSCORE', key, '-inf', int(now), 'WITHSCORES', 'LIMIT', 0, most))
end

-- Takes the heads out of a queue, `most` at most. Returns them, their orders as text, and `most`:
-- fewer heads mean that the queue is empty.
function queue.pop_heads(key, most)
  local members, orders = queue.split(redis_call('ZPOPMIN', key, most))
  return members, orders, most
end

-- Returns the members' scores as text, false for one that is not in the set.
function queue.scores_of(key, members)
  if #members == 1 then return {redis_call('ZSCORE', key, members[1])} end
  return redis_call('ZMSCORE', key, unpack(members))
end

-- Takes members out of a set and returns their scores like queue.scores_of().
function queue.pop_scores(key, members)
  local scores = redis_call('ZMSCORE', key, unpack(members))
  redis_call('ZREM', key, unpack(members))
  return scores
end

-- Returns the first moment, or math.huge if the set is empty.
function queue.first_moment(key)
  return tonumber(redis_call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or math.huge)
end
