-- Empties the line. A new epoch voids the tickets; who is inside or called stays.
-- ARGV    3 the operator who says so
-- RETURNS {now, places removed, epoch}
-- EVENTS  operator
-- @include "shared/room"
local removed = redis_call('ZCARD', WAITING)
redis_call('UNLINK', WAITING, DUE, POLLS, ARRIVALS, MOVED)
epoch = math.max(epoch + 1, now)
redis_call('HSET', CONFIG, 'epoch', int(epoch))
redis_call('HINCRBY', CONFIG, 'revision', 1)
count('resets')
note(ARGV[3], 'reset', '', int(removed))
finish()
return {now, removed, epoch}
