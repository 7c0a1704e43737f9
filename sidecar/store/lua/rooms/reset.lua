-- Empties the line. A new epoch voids the tickets; who is inside or called stays.
-- RETURNS {now, places removed, epoch}
-- @include "shared/room"
local removed = redis_call('ZCARD', WAITING)
redis_call('UNLINK', WAITING, DUE, POLLS)
epoch = math.max(epoch + 1, now)
redis_call('HSET', CONFIG, 'epoch', int(epoch))
redis_call('HINCRBY', CONFIG, 'revision', 1)
count('resets')
finish()
return {now, removed, epoch}
