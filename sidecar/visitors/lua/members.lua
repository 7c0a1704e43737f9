-- @include "visitors/script"
-- Reads and removes members of sorted sets. In a queue the scores are orders. In other sets they
-- are times: when each session ends, or when the next heartbeat of each waiting visitor is due.

-- Returns up to `max_count` members whose score is at most `now`, and their scores as strings.
function queue.members_until(now, key, max_count)
  return queue.split(
    redis_call('ZRANGEBYSCORE', key, '-inf', int(now), 'WITHSCORES', 'LIMIT', 0, max_count))
end

-- Pops up to `max_count` members from the head of a queue. Returns the members, their orders as
-- strings, and `max_count`. If fewer members were popped, the queue is empty.
function queue.pop_heads(key, max_count)
  local members, orders = queue.split(redis_call('ZPOPMIN', key, max_count))
  return members, orders, max_count
end

-- Returns the scores of members as strings, and false for each member that is not in the set.
function queue.scores_of(key, members)
  if #members == 1 then return {redis_call('ZSCORE', key, members[1])} end
  return redis_call('ZMSCORE', key, unpack(members))
end

-- Removes members from a set. Returns their scores in the same form as queue.scores_of().
function queue.pop_scores(key, members)
  local scores = redis_call('ZMSCORE', key, unpack(members))
  redis_call('ZREM', key, unpack(members))
  return scores
end

-- Returns the earliest time in a set, or math.huge if the set is empty.
function queue.earliest_time(key)
  return tonumber(redis_call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or math.huge)
end
