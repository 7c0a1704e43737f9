-- Empties the queue, and begins a new epoch, which voids all tickets. Sessions stay, even those of
-- called visitors who have not arrived yet.
-- ARGV    6 the operator
-- RETURNS {now, how many places were removed, epoch}
-- EVENTS  operator
-- @include "rooms/parts/room"
-- @include "rooms/parts/measure"
local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  measure_elapsed()
  count('resets')
  local removed = size(DUE)
  redis_call('UNLINK', WAITING, DUE, RESERVED, POLLS, ARRIVALS, MOVED)
  epoch = math.max(epoch + 1, now)
  redis_call('HSET', CONFIG, 'epoch', int(epoch))
  redis_call('HINCRBY', CONFIG, 'revision', 1)
  log_action(ARGV[6], 'reset', '', int(removed))
  finish()
  return {now, removed, epoch}
end
